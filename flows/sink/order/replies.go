package order

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach"
	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/tcpsend"
	"github.com/unifiedd/unifiedd/umem"
)

// replies gives what the exchange sends to the program, as pieces of a stream of bytes. Without an end it is dropped
// and counted.
type replies struct {
	region  *umem.Region
	end     *attach.End          // nil: nobody gets them
	first   func(b []byte) error // looks at what nobody gets; nil: nobody does
	others  bool                 // the program that has given the connection reads them itself
	own     umem.FreeList
	room    uint32 // bytes of a piece
	number  uint64 // of the last piece
	ready   bool   // something came while fds was called
	scratch [4096]byte
	batch   [pipeline.Burst]umem.Frame
}

// pieces is how many pieces the program may have at once.
const pieces = 64

// open makes the end at which the program may open a port for replies.
func (r *replies) open(e *pipeline.Env, ready func() error) error {
	var err error
	r.region, r.room = e.Region, e.Region.FrameSize()
	r.end, err = e.Shared.Attach.NewEnd(attach.EndConfig{
		Flow: e.Flow.Name, Program: e.Flow.From.Attach, Role: wire.Receive, Entries: pieces, Longest: r.room, Worker: e.Holder, Do: e.Do, Events: e.Events,
		Ready: ready, Closed: func(back []umem.Frame) { r.own.Push(back...) },
	})
	if err != nil {
		return err
	}
	e.Undo.Add(r.end.Close)
	part := r.end.Part()
	frames := make([]umem.Frame, min(pieces, int(part.Size()/uint64(r.room))/max(1, e.Shared.Config.Receiving(e.Flow.From.Attach))))
	n := e.Holder.TakeFrom(part, frames)
	if n == 0 {
		return fmt.Errorf("the memory that program %s reads has no free frame for replies: raise in in attach.programs", e.Flow.From.Attach)
	}
	r.own.Push(frames[:n]...)
	return nil
}

// reap takes back what the program has released.
func (r *replies) reap() {
	for r.end != nil {
		n := r.end.Released(r.batch[:])
		r.own.Push(r.batch[:n]...)
		if n < len(r.batch) {
			return
		}
	}
}

// takes reports whether there is room for what the exchange sends.
func (r *replies) takes() bool {
	if r.end == nil {
		return !r.others
	}
	return r.own.Len() > 0 && r.end.Room() > 0
}

// take takes one piece from a connection, and returns its bytes. 0: there is none, or no room.
func (r *replies) take(c *tcpsend.Conn) int {
	if r.end == nil {
		n := c.Receive(r.scratch[:])
		if r.first != nil && n > 0 {
			if err := r.first(r.scratch[:n]); err != nil {
				c.End(err)
			}
		}
		return n
	}
	var one [1]umem.Frame
	if !r.takes() || !r.own.Pop(one[:]) {
		return 0
	}
	n := c.Receive(r.region.At(one[0].Addr, uint64(r.room)))
	if n == 0 {
		r.own.Push(one[0])
		return 0
	}
	r.number++
	r.end.Give(umem.Frame{Addr: one[0].Addr, Len: uint32(n)}, r.number, 0, uint64(time.Now().UnixNano()))
	return n
}

// receive takes what the exchange has sent, as far as there is room. What there is no room for stays with the kernel,
// and slows the exchange down. It reports whether it has taken something.
func (s *Sink) receive() (some bool) {
	for range pieces {
		if !s.replies.takes() || s.conn.Waiting() == 0 {
			return some
		}
		n := s.replies.take(s.conn)
		if n == 0 {
			return some
		}
		s.count.received.Add(uint64(n))
		some = true
	}
	return some
}

// lingerTime is how long what the exchange sent before its end waits for a program that does not take it.
const lingerTime = time.Second

// lingers reports whether a connection that has ended is still needed: the exchange has closed it, and the program has
// not had room for all that it sent before. If the connection were closed now, that would be lost, and the exchange would
// get a reset.
func (s *Sink) lingers(took bool, now time.Time) bool {
	if !errors.Is(s.conn.Err(), tcpsend.ErrPeerClosed) || s.conn.Waiting() == 0 || s.replies.end == nil || !s.replies.end.Attached() {
		s.last = time.Time{}
		return false
	}
	if took || s.last.IsZero() {
		s.last = now
	}
	s.next = now
	return now.Sub(s.last) < lingerTime
}

// shut closes the program's port.
func (r *replies) shut(why string) error {
	if r.end == nil {
		return nil
	}
	return r.end.Shut(why)
}

func (r *replies) kick() {
	if r.end != nil {
		r.end.Kick()
	}
}

func (r *replies) fds(dst []unix.PollFd) []unix.PollFd {
	if r.end == nil {
		return dst
	}
	fd, wait := r.end.FD()
	r.ready = !wait
	if fd >= 0 {
		dst = append(dst, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	return dst
}

func (r *replies) observe(to *status.Flow) {
	if r.end == nil {
		return
	}
	e := r.end.Stats()
	to.Gives = &status.Gives{
		Program: r.end.Program(), Open: e.Open, Ports: e.Opened, Messages: e.Given, Bytes: e.GivenBytes, Released: e.Released, Frames: e.Out,
	}
}
