package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/rdma/msg"
	"github.com/unifiedd/unifiedd/umem"
)

// store is one side of the storage test: a port to the peer and, for the server, a queue of the
// disk. Extents circulate between them.
type store struct {
	*session
	job
	ctx    context.Context
	port   *msg.Port
	conn   *connect.Conn
	queue  *nvme.Queue
	target uint32
	frames []umem.Frame // extents that neither of them holds
	idle   time.Time    // since when nothing has moved
}

// control is the memory for the rings of the disk's queue.
const control = 2 << 20

// newStore makes the port on a queue pair in INIT.
func newStore(ctx context.Context, s *session, j job) (st *store, e connect.End, err error) {
	st = &store{session: s, job: j, ctx: ctx}
	st.frames = make([]umem.Frame, j.room().extents)
	if n := s.worker.TakeExtents(st.frames); n < len(st.frames) {
		return st, e, errors.New("the region has no room for the messages")
	}
	qp, err := st.queuePair()
	if err != nil {
		return st, e, err
	}
	s.settings.RNRRetries = 7 // without limit: the disk may be slow
	e = connect.End{Queue: qp, Settings: s.settings, Elsewhere: j.Manager}
	if e.Parameters, err = connect.Prepare(s.device, qp, s.settings); err != nil {
		return st, e, err
	}
	st.frames = st.frames[st.port.Supply(st.frames):]
	return st, e, st.port.Kick()
}

// queuePair makes the queue pair, and the port that owns it.
func (st *store) queuePair() (rdma.QueuePair, error) {
	c := rdma.QueuePairConfig{Transport: rdma.RC, SendDepth: st.Depth, RecvDepth: st.Depth, SendSGEs: 1, RecvSGEs: 1}
	var err error
	for _, q := range []*rdma.CompletionQueue{&c.SendCQ, &c.ReceiveCQ} {
		if *q, err = st.device.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: st.Depth}); err != nil {
			return nil, errors.Join(err, closeAll(c.SendCQ))
		}
	}
	qp, err := st.domain.NewQueuePair(c)
	if err != nil {
		return nil, errors.Join(err, closeAll(c.SendCQ, c.ReceiveCQ))
	}
	st.port, err = keep(st.session, msg.Open, msg.Config{Name: st.device.Name(), Worker: st.worker, Memory: st.memory,
		SendCQ: c.SendCQ, ReceiveCQ: c.ReceiveCQ, QueuePairs: []msg.Peer{{QueuePair: qp, Message: st.Size}}})
	return qp, err
}

func closeAll(queues ...rdma.CompletionQueue) (err error) {
	for _, q := range queues {
		if q != nil {
			err = errors.Join(err, q.Close())
		}
	}
	return err
}

// connected records the peer.
func (st *store) connected(c *connect.Conn) {
	st.conn = c
	st.cleanup.Then(c.Close)
}

// openDisk opens the server's disk, or a file of the size of all messages. The queue belongs to the
// calling thread.
func (st *store) openDisk() error {
	runtime.LockOSThread()
	st.cleanup.Then(func() error { runtime.UnlockOSThread(); return nil })
	target, err := keep(st.session, nvme.OpenTarget, nvme.TargetConfig{Path: st.options.disk, Size: uint64(st.Count) * st.Size,
		Create: true, Prepare: nvme.PrepareZero, Force: st.options.force})
	if err != nil {
		if errors.Is(err, nvme.ErrDeviceInUse) || errors.Is(err, nvme.ErrDeviceNotEmpty) {
			err = fmt.Errorf("%w (-force writes over it)", err)
		}
		return err
	}
	st.queue, err = keep(st.session, nvme.Open, nvme.Config{Worker: st.worker, Depth: st.Depth, Targets: 1, Passthrough: target.Passthrough()})
	if err == nil {
		st.target, err = st.queue.Add(target)
	}
	return err
}

// take takes frames from one end of a port. A failed frame is an error.
func (st *store) take(from func([]umem.Frame) int, buf []umem.Frame) ([]umem.Frame, error) {
	n := from(buf)
	for _, f := range buf[:n] {
		if f.Err() != nil {
			cause := st.port.Cause(0)
			st.frames = append(st.frames, buf[:n]...)
			return nil, errors.Join(st.over(), cause, fmt.Errorf("a frame came back: %w", f.Err()))
		}
	}
	return buf[:n], nil
}

// pace is called once a round. moved says whether any frame moved.
func (st *store) pace(moved bool) error {
	now := time.Now()
	switch {
	case st.ctx.Err() != nil:
		return context.Cause(st.ctx)
	case st.over() != nil:
		return st.over()
	case moved || st.idle.IsZero():
		st.idle = now
	case now.Sub(st.idle) > st.options.replyTimeout:
		return fmt.Errorf("nothing moved for %v: check that the peer is alive and that packets pass (UDP port 4791), or raise -timeout", st.options.replyTimeout)
	case now.Sub(st.idle) > 100*time.Microsecond:
		time.Sleep(50 * time.Microsecond)
	}
	return nil
}

// kick submits to the disk and the port.
func (st *store) kick() error {
	err := st.port.Kick()
	if st.queue != nil {
		err = errors.Join(err, st.queue.Kick())
	}
	return err
}

func (st *store) tell(v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		err = st.conn.Send(b)
	}
	return err
}

func (st *store) hear(v any) error {
	if err := st.conn.SetDeadline(time.Now().Add(st.options.replyTimeout)); err != nil {
		return err
	}
	b, err := st.conn.Receive()
	if errors.Is(err, io.EOF) {
		return errors.New("the peer ended the connection: its own error says why")
	}
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	return err
}
