package serve

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach"
	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/worker"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/internal/numa"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/umem"
)

var _ pipeline.Flow = (*Program)(nil)

// Program serves the blocks of a file or device to an attached program: the disk reads into memory that the program
// maps.
type Program struct {
	pipeline.Server
	err      *pipeline.FirstError
	region   *umem.Region
	book     *umem.Book
	end      *attach.End
	target   *nvme.Target
	queue    *nvme.Queue
	index    uint32
	free     umem.FreeList // frames of the program's memory
	requests [pipeline.Burst]attach.Requested
	asked    []time.Time // by sequence, modulo the entries of a ring
	reading  int
	ready    bool
	closed   bool
	health   pipeline.Health

	served, bytes, refused counter.Counter
	times                  latency.Shared
}

// OpenProgram opens the flow. The program may open a port after Begin.
func OpenProgram(e *pipeline.Env) (*pipeline.Run, error) {
	to := &e.Flow.To
	if e.Shared.Attach == nil {
		return nil, errors.New("no program can attach: add attach.programs")
	}
	s := &Program{err: e.Err, region: e.Region, book: e.Book, asked: make([]time.Time, to.Queue)}
	path := cmp.Or(e.Flow.From.Device, e.Flow.From.File)
	var err error
	if s.target, err = nvme.OpenTarget(nvme.TargetConfig{Path: path, ReadOnly: true}); err != nil {
		return nil, err
	}
	e.Undo.Add(s.target.Close)
	s.queue, err = nvme.Open(nvme.Config{Worker: e.Holder, Name: e.Name(), Depth: to.Queue, Frames: to.Queue, Pieces: 1, Targets: 1, Passthrough: s.target.Passthrough()})
	if err != nil {
		return nil, err
	}
	e.Undo.Add(s.queue.Close)
	if s.index, err = s.queue.Add(s.target); err != nil {
		return nil, err
	}
	s.end, err = e.Shared.Attach.NewEnd(attach.EndConfig{
		Flow: e.Flow.Name, Program: to.Attach, Role: wire.Request, Entries: to.Queue, Longest: e.Region.FrameSize(), Worker: e.Holder, Do: e.Do, Events: e.Events,
		Size: s.target.Size(), Align: uint32(s.target.Alignment().Offset), Idle: func() bool { return s.reading == 0 }, Closed: func(back []umem.Frame) { s.free.Push(back...) },
	})
	if err != nil {
		return nil, err
	}
	e.Undo.Add(s.end.Close)
	part := s.end.Part()
	frames := make([]umem.Frame, min(to.Queue, int(part.Size()/uint64(e.Region.FrameSize()))/e.Shared.Config.Receiving(to.Attach)))
	n := e.Holder.TakeFrom(part, frames)
	if n == 0 || n < len(frames) {
		return nil, fmt.Errorf("the memory that program %s reads has %d of %d free frames: raise in in attach.programs", to.Attach, n, len(frames))
	}
	s.free.Push(frames...)
	return pipeline.NewRun(e, s, numa.OfPath(path), numa.Unknown), nil
}

// Poll is one round.
func (s *Program) Poll(now time.Time) (more bool) {
	var back [pipeline.Burst]umem.Frame
	n := s.end.Released(back[:])
	s.free.Push(back[:n]...)
	if s.err.Get() == nil {
		more = s.takeRequests(now)
	}
	s.err.Note(s.queue.Kick())
	s.takeReads(now)
	s.end.Kick()
	s.book.Publish()
	return more
}

// takeRequests starts a read for each request. There is a frame and a place in the ring for each answer.
func (s *Program) takeRequests(now time.Time) (more bool) {
	most := min(len(s.requests), s.free.Len(), s.end.Room()-s.reading)
	if most <= 0 || s.closed {
		return false
	}
	n := s.end.Requests(s.requests[:most])
	for i := range n {
		r := &s.requests[i]
		if why := s.check(r); why != wire.None {
			s.refused.Add(1)
			s.end.Refuse(r, why)
			continue
		}
		var one [1]umem.Frame
		s.free.Pop(one[:])
		start, _ := s.region.Start(one[0])
		one[0] = umem.Frame{Addr: start, Len: r.Length}
		side := s.region.Side(one[0])
		side.Target, side.Block, side.Token = s.index, r.Offset, r.Sequence
		s.asked[r.Sequence%uint64(len(s.asked))] = now
		if s.queue.Supply(one[:]) == 0 { // it has a place for each frame
			s.free.Push(one[:]...)
			s.end.Refuse(r, wire.NotDone)
			continue
		}
		s.reading++
	}
	return n == most
}

// check reports what is wrong with a request.
func (s *Program) check(r *attach.Requested) wire.Reason {
	align := uint64(s.target.Alignment().Offset)
	switch {
	case r.Length == 0 || r.Length > s.region.FrameSize():
		return wire.TooLong
	case r.Offset%align != 0 || uint64(r.Length)%align != 0 || r.Offset > s.target.Size() || uint64(r.Length) > s.target.Size()-r.Offset:
		return wire.BadDescriptor
	}
	return wire.None
}

// takeReads gives what the disk has read to the program.
func (s *Program) takeReads(now time.Time) {
	var fs [pipeline.Burst]umem.Frame
	for {
		n := s.queue.Recv(fs[:])
		for _, f := range fs[:n] {
			s.reading--
			side := s.region.Side(f)
			if !s.end.Attached() {
				s.free.Push(umem.Frame{Addr: f.Addr})
				continue
			}
			s.times.Record(uint64(max(0, now.Sub(s.asked[side.Token%uint64(len(s.asked))]))))
			if f.Err() != nil {
				s.refused.Add(1)
				s.end.Refuse(&attach.Requested{Sequence: side.Token, Offset: side.Block}, wire.NotDone)
				s.free.Push(umem.Frame{Addr: f.Addr})
				continue
			}
			s.served.Add(1)
			s.bytes.Add(uint64(f.Len))
			s.end.Give(umem.Frame{Addr: f.Addr, Len: f.Len}, side.Block, side.Token, uint64(now.UnixNano()))
		}
		if n < len(fs) {
			return
		}
	}
}

func (s *Program) FDs(dst []unix.PollFd) []unix.PollFd {
	fd, wait := s.end.FD()
	s.ready = !wait
	if fd >= 0 {
		dst = append(dst, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	return append(dst, unix.PollFd{Fd: int32(s.queue.FD()), Events: unix.POLLIN})
}

func (s *Program) Deadline(now time.Time) time.Time {
	if s.ready {
		return now
	}
	return now.Add(worker.MaxWait)
}

// Begin implements pipeline.Flow. From now on the program may open a port.
func (s *Program) Begin() error {
	s.end.Begin()
	return nil
}

func (s *Program) Announce() []any {
	return []any{"program", s.end.Program(), "bytes", s.target.Size()}
}

func (s *Program) Check(now time.Time) (waits, ends error) {
	return s.health.Check(now, s.target.Path(), "the program waits", s.queue.Stats()), nil
}

// Traffic returns the requests served, and their bytes.
func (s *Program) Traffic() (packets, bytes uint64) { return s.served.Load(), s.bytes.Load() }

// Drain implements pipeline.Flow: requests that were taken are answered.
func (s *Program) Drain(time.Time, uint64) (bool, error) {
	s.closed = true
	return s.reading == 0, nil
}

func (s *Program) Pending() int { return int(s.queue.Stats().InFlight) }

func (s *Program) CloseQueue() error { return s.queue.CloseWithin(time.Millisecond) }

func (s *Program) Observe(to *status.Flow) error {
	to.Packets, to.Bytes = s.Traffic()
	to.Latency = s.times.Summary()
	e := s.end.Stats()
	to.Gives = &status.Gives{Program: s.end.Program(), Open: e.Open, Ports: e.Opened, Messages: e.Given, Bytes: e.GivenBytes, Released: e.Released, Frames: e.Out}
	to.Dropped["not_done"] = s.refused.Load()
	st := s.queue.Stats()
	to.KernelBytes["disk"] = st.Copied
	to.DiskErrors[unix.ErrnoName(unix.EIO)] = 0
	for errno, n := range st.Errors {
		to.DiskErrors[unix.ErrnoName(errno)] = n
	}
	return nil
}
