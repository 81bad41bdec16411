package porttest

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/umem"
)

// Config describes a Pair. Every field has a default.
type Config struct {
	Depth   int    // frames each end holds in each direction; default 64
	Message uint64 // bytes in a message; default what fits into Frames frames
	Frames  int    // frames in a message; default 4
	Landing uint32 // offset in a supplied frame where a message lands, in bytes
}

// Pair makes the reference port's two ends. Each receives what the other sends. Messages move when
// either end is kicked. They are copied, in order, and wait until frames are supplied. Both ends
// belong to the worker's thread. The caller closes both.
func Pair(worker *umem.Holder, c Config) (a, b *End, err error) {
	c.setDefaults(worker.Book().Region())
	if a, err = newEnd(worker, c, "pair: first end"); err != nil {
		return nil, nil, err
	}
	if b, err = newEnd(worker, c, "pair: second end"); err != nil {
		return nil, nil, errors.Join(err, a.Close())
	}
	a.peer, b.peer = b, a
	return a, b, nil
}

func (c *Config) setDefaults(r *umem.Region) {
	if c.Depth == 0 {
		c.Depth = 64
	}
	if c.Frames == 0 {
		c.Frames = 4
	}
	if c.Message == 0 {
		c.Message = uint64(c.Frames) * uint64(r.FrameSize()-c.Landing)
	}
}

// End is one end of a Pair. It is the simplest possible port: four queues.
type End struct {
	config   Config
	region   *umem.Region
	worker   *umem.Holder // the holder of frames outside the port
	holder   *umem.Holder // the frames in the queues
	peer     *End
	supplied queue // empty, to be filled
	full     queue // to be received
	sent     queue // to be drained
	drained  queue // to be reaped
	event    event
	closed   bool
}

var _ umem.Port = (*End)(nil)

func newEnd(worker *umem.Holder, c Config, name string) (*End, error) {
	h, err := worker.Book().NewHolder(umem.OwnerXDP, name)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	e := &End{config: c, region: worker.Book().Region(), worker: worker, holder: h,
		supplied: newQueue(c.Depth), full: newQueue(c.Depth), sent: newQueue(c.Depth), drained: newQueue(c.Depth)}
	if err := e.event.open(); err != nil {
		h.Close()
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return e, nil
}

// Supply queues frames to be filled.
func (e *End) Supply(empty []umem.Frame) int {
	if e.closed {
		return 0
	}
	n := min(len(empty), e.config.Depth-e.supplied.count-e.full.count)
	for _, f := range empty[:n] {
		e.supplied.push(f)
	}
	e.worker.PassTo(e.holder, empty[:n])
	return n
}

// Send queues whole messages to be drained.
func (e *End) Send(full []umem.Frame) int {
	if e.closed {
		return 0
	}
	room := min(len(full), e.config.Depth-e.sent.count-e.drained.count)
	n := umem.Whole(full[:room])
	for _, f := range full[:n] {
		e.sent.push(f)
	}
	e.worker.PassTo(e.holder, full[:n])
	return n
}

// Recv returns frames with received messages.
func (e *End) Recv(dst []umem.Frame) int { return e.give(&e.full, dst) }

// Reap returns frames that were drained, or whose message failed.
func (e *End) Reap(dst []umem.Frame) int { return e.give(&e.drained, dst) }

func (e *End) give(q *queue, dst []umem.Frame) int {
	n := min(len(dst), q.count)
	for i := range dst[:n] {
		dst[i] = q.pop()
	}
	e.holder.PassTo(e.worker, dst[:n])
	e.tell()
	return n
}

// Kick moves messages in both directions, as far as frames are supplied.
func (e *End) Kick() error {
	if e.closed {
		return fmt.Errorf("kick %s: %w", e.holder.Name(), unix.EBADF)
	}
	e.move()
	e.peer.move()
	e.tell()
	e.peer.tell()
	return nil
}

// tell makes the descriptor poll readable exactly while Recv or Reap has frames.
func (e *End) tell() { e.event.set(e.full.count+e.drained.count > 0) }

// FD polls readable while there are frames to receive or to reap. It is -1 after
// Close.
func (e *End) FD() int { return e.event.fd }

// Limits returns the limits of the pair.
func (e *End) Limits() umem.Limits {
	return umem.Limits{Message: e.config.Message, Frames: e.config.Frames, Supply: e.config.Depth, Send: e.config.Depth}
}

// Close gives every frame inside to the pool. Messages that the other end sends from then on fail
// with ENOTCONN.
func (e *End) Close() error {
	if e.closed {
		return nil
	}
	e.closed = true
	for _, q := range []*queue{&e.supplied, &e.full, &e.sent, &e.drained} {
		q.clear()
	}
	e.holder.Close()
	return e.event.close()
}
