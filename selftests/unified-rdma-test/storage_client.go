package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/selftests/harness"
	"github.com/unifiedd/unifiedd/umem"
)

// askStorage is the client's side of the storage test.
func (s *session) askStorage(ctx context.Context, address string, config connect.Config) (result, error) {
	st, end, err := newStore(ctx, s, s.options.job)
	if err != nil {
		return result{}, err
	}
	if end.Hello, err = st.encode(); err != nil {
		return result{}, err
	}
	conn, err := connect.Dial(ctx, address, end, config)
	if err != nil {
		return result{}, err
	}
	st.connected(conn)
	if err := s.meet(ctx, address, conn, end.Queue, end.Parameters, st.Manager); err != nil {
		return result{}, err
	}
	r := stored{Bytes: st.Size * uint64(st.Count)}
	begin := time.Now()
	if err := st.sendAll(); err != nil {
		return result{}, fmt.Errorf("to the server: %w", err)
	}
	var p phase
	if err := st.hear(&p); err != nil {
		return result{}, fmt.Errorf("wait until everything is on the disk: %w", err)
	}
	r.Write, r.Registrations = time.Since(begin), p.Region
	begin = time.Now()
	if err := st.tell(phase{Phase: "read"}); err != nil {
		return result{}, err
	}
	if err := st.compareAll(); err != nil {
		return result{}, fmt.Errorf("back from the server: %w", err)
	}
	r.Read = time.Since(begin)
	if err := st.hear(&p); err != nil {
		return result{}, err
	}
	r.ServerCopied = p.Copied
	return result{job: st.job, storage: &r}, nil
}

// sendAll sends all messages.
func (st *store) sendAll() error {
	var buf [64]umem.Frame
	sent := 0
	for done := 0; done < st.Count; {
		moved := 0
		for len(st.frames) > 0 && sent < st.Count {
			f := st.frames[len(st.frames)-1]
			start, _ := st.region.Start(f)
			f = umem.Frame{Addr: start, Len: uint32(st.Size)}
			harness.Fill(st.region.Bytes(f), st.Seed, uint64(sent))
			if st.port.Send([]umem.Frame{f}) == 0 {
				break
			}
			st.frames = st.frames[:len(st.frames)-1]
			sent++
			moved++
		}
		fs, err := st.take(st.port.Reap, buf[:])
		if err != nil {
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

// compareAll receives all messages back, in order, and compares them.
func (st *store) compareAll() error {
	var buf [64]umem.Frame
	for came := 0; came < st.Count; {
		fs, err := st.take(st.port.Recv, buf[:])
		if err != nil {
			return err
		}
		for _, f := range fs {
			if uint64(f.Len) != st.Size {
				return fmt.Errorf("message %d has %d bytes, not %d", came, f.Len, st.Size)
			}
			if at := harness.Differs(st.region.Bytes(f), st.Seed, uint64(came)); at >= 0 {
				return fmt.Errorf("message %d differs from byte %d on", came, at)
			}
			came++
		}
		st.port.Supply(fs)
		if err := errors.Join(st.kick(), st.pace(len(fs) > 0)); err != nil {
			return err
		}
	}
	return nil
}
