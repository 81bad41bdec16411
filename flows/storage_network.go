package flows

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/worker"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// storageNetwork sends the packets of captures by an interface, from where the disk put them.
//
//	NVMe read → packets in extents → AF_XDP Send, each at its time … Reap → NVMe read
//
// It belongs to its worker's thread; the counters may be read from anywhere.
type storageNetwork struct {
	err     *pipeline.FirstError
	log     *slog.Logger
	reel    reel
	egress  egress
	book    *umem.Book
	silence pipeline.Health // of the disk; the watcher's
	begun   atomic.Bool
	halting atomic.Bool
	all     atomic.Bool // everything was sent

	unpacked uint64 // bytes of captures that were copied into temporary files
}

// poll is one round.
func (s *storageNetwork) Poll(now time.Time) (more bool) {
	s.egress.reap(&s.reel)
	s.err.Note(s.reel.settle())
	s.reel.release()
	s.reel.fetch()
	s.err.Note(s.reel.queue.Kick())
	more = s.forward(now)
	if s.egress.flying.Load() > 0 || !s.egress.stopped.IsZero() {
		s.err.Note(s.egress.kick())
	}
	s.book.Publish()
	return more
}

// forward sends what is due.
func (s *storageNetwork) forward(now time.Time) bool {
	switch {
	case s.err.Get() != nil || !s.begun.Load() || s.halting.Load() || s.all.Load():
		return false
	case s.egress.resting.Load():
		s.egress.rest()
		return false
	case !s.egress.stopped.IsZero():
		return false
	}
	more, err := s.egress.send(&s.reel, now)
	s.err.Note(err)
	if s.reel.over && !s.reel.found || s.egress.full() {
		s.all.Store(true)
	}
	return more
}

func (s *storageNetwork) FDs(dst []unix.PollFd) []unix.PollFd {
	return append(dst, unix.PollFd{Fd: int32(s.reel.queue.FD()), Events: unix.POLLIN})
}

// deadline is when the next packet is to leave, less what is not slept of that. The device says by nothing that it is done with
// packets.
func (s *storageNetwork) Deadline(now time.Time) time.Time {
	at := now.Add(worker.MaxWait)
	if s.egress.flying.Load() > 0 || !s.egress.stopped.IsZero() {
		at = now.Add(time.Millisecond)
	}
	if s.egress.timed && s.egress.stopped.IsZero() && !s.halting.Load() {
		at = pipeline.Earlier(at, s.egress.due.Add(-s.egress.spin))
	}
	return at
}

// begin lets packets out.
func (s *storageNetwork) Begin() error {
	s.begun.Store(true)
	return nil
}

func (s *storageNetwork) Done() bool { return s.all.Load() && s.egress.flying.Load() == 0 }

func (s *storageNetwork) Traffic() (packets, bytes uint64) {
	return s.egress.packets.Load(), s.egress.bytes.Load()
}

// check asks after the interface and the disk. Without a link nothing is sent.
func (s *storageNetwork) Check(now time.Time) (waits, ends error) {
	err := s.egress.net.Check()
	down := errors.Is(err, xdp.ErrInterfaceDown)
	s.egress.resting.Store(down)
	switch {
	case down:
		return err, nil
	case err != nil:
		return nil, err
	}
	return s.silence.Check(now, s.from(), "nothing more is sent", s.reel.queue.Stats()), nil
}

func (s *storageNetwork) Trouble() error { return nil }

// halt sends no more.
func (s *storageNetwork) StopReceiving() error {
	s.halting.Store(true)
	return nil
}

// finish waits until the device has sent what it has, unless it is down, and the disk has read what it was asked for.
func (s *storageNetwork) Drain(time.Time, uint64) (bool, error) {
	return s.reel.queue.Stats().InFlight == 0 && (s.egress.flying.Load() == 0 || !s.egress.stopped.IsZero() || s.egress.resting.Load()), nil
}

func (s *storageNetwork) Diagnose(err error) error { return err }

func (s *storageNetwork) Pending() int { return int(s.reel.queue.Stats().InFlight) }

func (s *storageNetwork) CloseQueue() error { return s.reel.queue.CloseWithin(time.Millisecond) }
