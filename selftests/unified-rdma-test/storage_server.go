package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// phase tells the peer that a phase of the test has ended.
type phase struct {
	Phase  string
	Copied uint64   `json:",omitempty"` // bytes the server's kernel copied
	Region []string `json:",omitempty"` // the registrations of the server's region
}

// store is the server's side of the storage test.
func (s *session) store(ctx context.Context, j job, r *connect.Request, out io.Writer) error {
	st, end, err := newStore(ctx, s, j)
	if err == nil {
		err = st.openDisk()
	}
	if err != nil {
		return errors.Join(err, r.Refuse(err.Error()))
	}
	w, err := s.waiting(j)
	if err != nil {
		return errors.Join(err, r.Refuse(err.Error()))
	}
	end.Hello = w.hello()
	conn, err := r.Accept(end)
	if err != nil {
		return err
	}
	st.connected(conn)
	if err := w.meet(ctx, end.Queue, end.Parameters); err != nil {
		return err
	}
	if err := st.serve(); err != nil {
		return fmt.Errorf("%v: %w", &j, err)
	}
	fmt.Fprintf(out, "done; the region was registered with %v\n", s.region.Registered())
	return nil
}

func (st *store) serve() error {
	if err := st.writeAll(); err != nil {
		return fmt.Errorf("from the peer to the disk: %w", err)
	}
	s := st.queue.Stats()
	if err := st.tell(phase{Phase: "written", Copied: s.Copied, Region: st.region.Registered()}); err != nil {
		return err
	}
	var p phase
	if err := st.hear(&p); err != nil {
		return err
	}
	if err := st.readAll(); err != nil {
		return fmt.Errorf("from the disk to the peer: %w", err)
	}
	s = st.queue.Stats()
	return st.tell(phase{Phase: "read", Copied: s.Copied})
}

// writeAll writes each message to the disk from the extent that received it. Written extents become
// receives again.
func (st *store) writeAll() error {
	var buf [64]umem.Frame
	came := 0
	for written := 0; written < st.Count; {
		room := min(st.Depth-(came-written), len(buf)) // room in the disk's queue; more messages may have arrived
		fs, err := st.take(st.port.Recv, buf[:room])
		if err != nil {
			return err
		}
		for i := range fs {
			if uint64(fs[i].Len) != st.Size {
				return fmt.Errorf("message %d has %d bytes, not %d", came, fs[i].Len, st.Size)
			}
			side := st.region.Side(fs[i])
			side.Target, side.Block = st.target, uint64(came)*st.Size
			came++
		}
		if n := st.queue.Send(fs); n < len(fs) {
			return fmt.Errorf("the disk's queue took %d of %d frames", n, len(fs))
		}
		moved := len(fs)
		if fs, err = st.take(st.queue.Reap, buf[:]); err != nil {
			return err
		}
		written += len(fs)
		st.port.Supply(fs)
		if err := errors.Join(st.kick(), st.pace(moved+len(fs) > 0)); err != nil {
			return err
		}
	}
	return st.flush()
}

// flush waits until everything is on the disk.
func (st *store) flush() error {
	if err := st.queue.Flush(st.target, 0); err != nil {
		return err
	}
	var done [1]nvme.FlushResult
	for {
		if err := errors.Join(st.queue.Kick(), st.pace(false)); err != nil {
			return err
		}
		if st.queue.Flushed(done[:]) > 0 {
			return done[0].Err
		}
	}
}

// readAll reads the blocks back and sends them, in order.
func (st *store) readAll() error {
	var buf [64]umem.Frame
	read := make([]umem.Frame, st.Depth) // by block, to send them in order
	asked, sent, done := 0, 0, 0
	for done < st.Count {
		moved := st.askFor(&asked)
		fs, err := st.take(st.queue.Recv, buf[:])
		if err != nil {
			return err
		}
		for _, f := range fs {
			read[st.region.Side(f).Block/st.Size%uint64(st.Depth)] = f
		}
		for n := &read[sent%st.Depth]; sent < st.Count && n.Len > 0; n = &read[sent%st.Depth] {
			if st.port.Send([]umem.Frame{*n}) == 0 {
				break
			}
			*n = umem.Frame{}
			sent++
		}
		moved += len(fs)
		if fs, err = st.take(st.port.Reap, buf[:]); err != nil {
			return err
		}
		st.frames = append(st.frames, fs...)
		done += len(fs)
		if err := errors.Join(st.kick(), st.pace(moved+len(fs) > 0)); err != nil {
			return err
		}
	}
	return nil
}

// askFor submits reads of the next blocks, as many as there are free extents.
func (st *store) askFor(next *int) (n int) {
	for len(st.frames) > 0 && *next < st.Count {
		f := st.frames[len(st.frames)-1]
		start, _ := st.region.Start(f)
		f = umem.Frame{Addr: start, Len: uint32(st.Size)}
		side := st.region.Side(f)
		side.Target, side.Block = st.target, uint64(*next)*st.Size
		if st.queue.Supply([]umem.Frame{f}) == 0 {
			break
		}
		st.frames = st.frames[:len(st.frames)-1]
		*next++
		n++
	}
	return n
}
