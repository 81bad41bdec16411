// Package program is a sink that gives packets and messages to an attached program.
package program

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach"
	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/worker"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/internal/fifo"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/umem"
)

// item is a packet or message in the program's memory.
type item struct {
	frame              umem.Frame
	position, sequence uint64
	stamp              uint64
}

// Config is what a sink needs in addition to the configuration of its flow.
type Config struct {
	Free *umem.FreeList // of the source
	// Messages says that batches have messages with headers, which lie in the program's memory.
	Messages bool
	// Here says that batches have packets that lie in the program's memory.
	Here bool
}

var _ pipeline.Sink = (*Sink)(nil)

// Sink gives packets and messages to an attached program.
type Sink struct {
	region   *umem.Region
	end      *attach.End
	free     *umem.FreeList // of the source
	messages bool           // batches have messages with headers
	there    bool           // what batches have lies in the program's memory already
	policy   config.Policy
	place    string // for the status
	expose   bool
	length   uint32 // of the longest packet
	batch    [2 * pipeline.Burst]umem.Frame

	own     umem.FreeList // frames of the program's memory, for copies
	total   int
	waiting fifo.Ring[item] // with policy drop_oldest

	number   uint64 // of the last packet
	blocked  bool
	ready    bool
	stopping bool // the flow stops
	stalls   counter.Counter
	copied   counter.Counter
	lost     struct{ absent, slow, long counter.Counter }
	times    pipeline.FrameTimes
}

// Open makes the end at which the program may open a port.
func Open(e *pipeline.Env, c Config) (*Sink, error) {
	to := &e.Flow.To
	if e.Shared.Attach == nil {
		return nil, errors.New("no program can attach: add attach.programs")
	}
	s := &Sink{region: e.Region, free: c.Free, messages: c.Messages, there: c.Messages || c.Here, policy: to.Policy, length: e.Region.FrameSize() - landing}
	var err error
	s.end, err = e.Shared.Attach.NewEnd(attach.EndConfig{
		Flow: e.Flow.Name, Program: to.Attach, Role: wire.Receive, Entries: to.Queue, Longest: e.Region.FrameSize(), Worker: e.Holder, Do: e.Do,
		Events: e.Events, Closed: s.returned,
	})
	if err != nil {
		return nil, err
	}
	e.Undo.Add(s.end.Close)
	s.waiting = fifo.New[item](to.Queue)
	s.place, s.expose = string(to.Place), to.Expose
	if s.there {
		return s, nil
	}
	part := s.end.Part()
	frames := make([]umem.Frame, min(2*to.Queue, int(part.Size()/uint64(e.Region.FrameSize()))/e.Shared.Config.Receiving(to.Attach)))
	s.total = e.Holder.TakeFrom(part, frames)
	if s.total < pipeline.Burst {
		return nil, fmt.Errorf("the memory that program %s reads has %d free frames; %d are needed at least: raise in in attach.programs", to.Attach, s.total, pipeline.Burst)
	}
	s.own.Push(frames[:s.total]...)
	return s, nil
}

// SetFree sets the list of the source, which is opened after the sink.
func (s *Sink) SetFree(free *umem.FreeList) { s.free = free }

// Part returns the program's memory, where messages must lie.
func (s *Sink) Part() *umem.Part { return s.end.Part() }

// landing is where a copied packet lies in its frame.
const landing = pcapng.PacketHeaderLen

// returned takes back what a program had whose port has closed, and what waited for it. It runs on the worker's
// thread.
func (s *Sink) returned(back []umem.Frame) {
	s.list().Push(back...)
	for s.waiting.Len() > 0 {
		s.list().Push(s.whole(s.waiting.Pop().frame))
		s.lost.absent.Add(1)
	}
}

// list is where frames that the program has released belong.
func (s *Sink) list() *umem.FreeList {
	if s.there {
		return s.free
	}
	return &s.own
}

func (s *Sink) Reap(time.Time) {
	s.blocked = false
	for {
		n := s.end.Released(s.batch[:])
		s.list().Push(s.batch[:n]...)
		if n < pipeline.Burst {
			break
		}
	}
	for room := s.end.Room(); room > 0 && s.waiting.Len() > 0; room-- {
		one := s.waiting.Pop()
		s.end.Give(one.frame, one.position, one.sequence, one.stamp)
	}
}

func (s *Sink) Write(b *pipeline.Batch, now time.Time) bool {
	whole := umem.Whole(b.Held())
	at := uint64(now.UnixNano())
	room := s.end.Room()
	run := s.times.Done.Run()
	done, all := 0, true
	for done < whole {
		n, length := umem.PacketLen(b.Frames[done:whole])
		packet := b.Frames[done : done+n]
		switch {
		case s.tooLong(n, length):
			s.drop(packet, &s.lost.long)
		case s.mayGive(room):
			run.Record(pipeline.Elapsed(at, pipeline.Arrival(s.region.Side(packet[0]), at)))
			if one := s.prepare(packet, length); room > 0 {
				s.end.Give(one.frame, one.position, one.sequence, one.stamp)
				room--
			} else {
				s.waiting.Push(one)
			}
		case s.policy == config.PolicyWait && (s.end.Attached() || !s.stopping):
			all = false
		case !s.end.Attached():
			s.drop(packet, &s.lost.absent)
		default:
			s.drop(packet, &s.lost.slow)
			if s.policy == config.PolicyDisconnect {
				s.end.Fail(wire.TooSlow)
			}
		}
		if !all {
			s.Block()
			break
		}
		done += n
	}
	run.End()
	b.Drop(done)
	return all
}

// tooLong reports whether the program cannot get a packet of that many frames and bytes. What lies in its memory
// already must be in one frame: an entry of a ring names one.
func (s *Sink) tooLong(frames int, length uint32) bool {
	if s.there {
		return frames > 1
	}
	return length > s.length
}

// mayGive reports whether the program can get another packet or message, which has room for that many: now, or
// later because others have less time.
func (s *Sink) mayGive(room int) bool {
	memory := s.there || s.own.Len() > 0
	if room > 0 && memory {
		return true
	}
	if s.policy != config.PolicyDropOldest || !s.end.Attached() {
		return false
	}
	if !memory || s.waiting.Len() == s.waiting.Cap() {
		if s.waiting.Len() == 0 {
			return false
		}
		s.list().Push(s.whole(s.waiting.Pop().frame))
		s.lost.slow.Add(1)
	}
	return true
}

// whole is the frame around a view.
func (s *Sink) whole(f umem.Frame) umem.Frame {
	start, room := s.region.Start(f)
	return umem.Frame{Addr: start, Len: uint32(room)}
}

// prepare puts a packet or message where the program can read it. There must be memory for it.
func (s *Sink) prepare(packet []umem.Frame, length uint32) item {
	first := packet[0]
	stamp := s.region.Side(first).Stamp
	s.number++
	if s.messages {
		header := s.region.At(first.Addr, protocol.HeaderLen)
		position, sequence := binary.BigEndian.Uint64(header[24:]), binary.BigEndian.Uint64(header[8:])
		return item{umem.Frame{Addr: first.Addr + protocol.HeaderLen, Len: first.Len - protocol.HeaderLen}, position, sequence, stamp}
	}
	if s.there {
		return item{umem.Frame{Addr: first.Addr, Len: first.Len}, s.number, 0, stamp}
	}
	var one [1]umem.Frame
	s.own.Pop(one[:])
	start, _ := s.region.Start(one[0])
	f := umem.Frame{Addr: start + landing, Len: length}
	b := s.region.Bytes(f)
	for _, part := range packet {
		b = b[copy(b, s.region.Bytes(part)):]
	}
	s.copied.Add(uint64(length))
	s.free.Push(packet...)
	return item{f, s.number, 0, stamp}
}

// drop loses a packet or message. Positions count it.
func (s *Sink) drop(packet []umem.Frame, why *counter.Counter) {
	s.number++
	s.free.Push(packet...)
	why.Add(1)
}

func (s *Sink) Block() {
	s.blocked = true
	s.stalls.Add(1)
}

func (s *Sink) Blocked() bool { return s.blocked }

// Stopping implements pipeline.Stopper: a program that is not there will not come.
func (s *Sink) Stopping() { s.stopping = true }

func (s *Sink) Kick() { s.end.Kick() }

func (s *Sink) FDs(dst []unix.PollFd) []unix.PollFd {
	fd, wait := s.end.FD()
	s.ready = !wait
	if fd >= 0 {
		dst = append(dst, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	return dst
}

func (s *Sink) Deadline(now time.Time) time.Time {
	switch {
	case s.ready:
		return now
	case s.blocked:
		return now.Add(time.Millisecond)
	}
	return now.Add(worker.MaxWait)
}

func (s *Sink) Observe(to *status.Flow) error {
	e := s.end.Stats()
	to.Gives = &status.Gives{
		Program: s.end.Program(), Place: s.place, Expose: s.expose, Open: e.Open, Ports: e.Opened, Messages: e.Given, Bytes: e.GivenBytes, Released: e.Released, Frames: e.Out,
	}
	to.CopiedBytes["attach"] = s.copied.Load()
	to.Dropped["no_program"] = s.lost.absent.Load()
	to.Dropped["slow_program"] = s.lost.slow.Load()
	to.Dropped["too_long"] = s.lost.long.Load()
	to.Stalls, to.FrameTimes = s.stalls.Load(), s.times.Status()
	return nil
}

// Begin implements pipeline.Sink. From now on the program may open a port.
func (s *Sink) Begin() error {
	s.end.Begin()
	return nil
}

func (s *Sink) Announce() []any {
	a := []any{"program", s.end.Program()}
	if s.place != "" {
		a = append(a, "place", s.place, "expose", s.expose)
	}
	return a
}
