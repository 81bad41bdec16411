// Package program is a source of messages that an attached program submits.
//
// A program fills frames of its own memory and can change them at any time. So nothing believes a header or a
// checksum there: a sink gets either a copy with a header, or the payload alone with the header beside it, see
// [layout.Records]. With from.trusted peers get payloads from where they lie. Then a message is acknowledged once
// no peer needs its frame any more, because with its acknowledgement the program has the frame again.
package program

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach"
	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/flows/layout"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/worker"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/umem"
)

var _ pipeline.Source = (*Source)(nil)

// Source takes messages of a program and tells it what became of them.
type Source struct {
	region *umem.Region
	end    *attach.End
	err    *pipeline.FirstError
	do     func(func() error) error
	holder *umem.Holder
	batch  pipeline.Batch
	taken  [pipeline.Burst]attach.Submitted

	copies  bool            // the sink gets copies, in frames of free
	records *layout.Records // the sink gets payloads, and headers here; nil: the sink needs no headers
	free    umem.FreeList   // for copies; or frames that the sink is done with, which pending has
	total   int             // frames for copies
	lent    []bool          // by frame of the program's memory: the sink has it; nil: none beyond its acknowledgement

	before       uint64    // position before this run's first message
	numbered     bool      // messages have positions
	pending      []pending // by message, modulo the length, a power of two
	received     uint64    // messages of this run
	acknowledged uint64    // of those
	session      uint64    // of the last message
	relayed      bool      // messages go to peers
	known        known
	sequences    func(session uint64) uint64
	question     *question                 // to a group; nil: none
	safe         func() uint64             // messages that are as safe as was promised; nil: all received
	room         func(position uint64) int // messages that may follow a position; nil: no limit
	delivered    func() bool               // nil: the sink always has delivered everything
	once         bool                      // no message is submitted again
	acknowledge  string                    // for the status of a log; empty: not a log
	outcome      func(n uint64) wire.Reason
	lost         uint64 // of a log: see status.Log

	ready                            bool // something came while FDs was called
	stopped                          atomic.Bool
	packets, bytes                   counter.Counter
	copied                           counter.Counter
	receivedShown, acknowledgedShown counter.Counter
	times                            latency.Shared
}

// pending is a message whose frame the program has not back.
type pending struct {
	addr     uint64
	session  uint64
	sequence uint64
	received int64 // nanoseconds since 1970
}

func (s *Source) Receive(sink pipeline.Output, open bool, now time.Time) (more bool) {
	if !sink.Write(&s.batch, now) || !open || s.stopped.Load() {
		return false
	}
	most := min(pipeline.Burst-s.batch.Len, len(s.pending)-int(s.received-s.acknowledged))
	if s.room != nil {
		most = min(most, s.room(s.before+s.received))
	}
	if s.copies {
		most = min(most, s.free.Len())
	}
	if most <= 0 {
		sink.Block()
		return false
	}
	n := s.end.Take(s.taken[:most])
	if n == 0 {
		return false
	}
	s.number(s.taken[:n], now)
	return sink.Write(&s.batch, now) && n == most
}

// number gives messages their positions and adds them to the batch.
func (s *Source) number(messages []attach.Submitted, now time.Time) {
	received, bytes := now.UnixNano(), uint64(0)
	for i := range messages {
		m := &messages[i]
		s.pending[s.received&uint64(len(s.pending)-1)] = pending{m.Frame.Addr, m.Session, m.Sequence, received}
		s.received++
		s.session = m.Session
		head := protocol.Data{Session: s.numberOf(m.Session), Sequence: m.Sequence, Stamp: uint64(received), Length: m.Frame.Len}
		if s.numbered {
			head.Position = s.before + s.received
		}
		f := m.Frame
		if s.copies {
			f = s.copyOf(f, &head)
		}
		side := s.region.Side(f)
		side.Stamp, side.Clock = uint64(received), umem.SystemClock
		if s.records != nil {
			s.records.Set(side, s.received, head)
		} else { // for a sink that measures
			side.Token, side.Block = m.Stamp, m.Decided
		}
		if s.lent != nil {
			s.lent[s.frameOf(f.Addr)] = true
		}
		s.batch.Frames[s.batch.Len] = f
		s.batch.Len++
		bytes += uint64(f.Len)
	}
	s.packets.Add(uint64(len(messages)))
	s.bytes.Add(bytes)
}

// known is a session, and the number that peers know it by.
type known struct{ session, number uint64 }

// numberOf returns the number that a log has of a session of the program. Several programs of a host may append to a log of
// peers, which tells readers the numbers of sessions, and a program chooses its own. So peers get a number that is made of
// the program's name, too: no program can find one that leads to a number of another program's.
func (s *Source) numberOf(session uint64) uint64 {
	if !s.relayed {
		return session
	}
	if s.known.session != session {
		sum := sha256.Sum256(binary.BigEndian.AppendUint64([]byte(s.end.Program()+"\x00"), session))
		s.known = known{session, max(1, binary.BigEndian.Uint64(sum[:]))}
	}
	return s.known.number
}

// copyOf makes a message of a payload, with a header in front, in a frame of the flow.
func (s *Source) copyOf(payload umem.Frame, head *protocol.Data) umem.Frame {
	var one [1]umem.Frame
	s.free.Pop(one[:])
	start, _ := s.region.Start(one[0])
	f := umem.Frame{Addr: start + landing, Len: protocol.HeaderLen + payload.Len}
	b := s.region.Bytes(f)
	copy(b[protocol.HeaderLen:], s.region.Bytes(payload))
	head.Checksum = protocol.Checksum(b[protocol.HeaderLen:])
	protocol.PutData(b, head)
	s.copied.Add(uint64(payload.Len))
	return f
}

// Acknowledge implements pipeline.Acknowledger. It gives frames back to the program with the positions of their
// messages.
func (s *Source) Acknowledge(now time.Time) {
	upTo := s.received
	if s.safe != nil {
		upTo = s.safe()
	}
	if s.lent != nil {
		s.takeBack()
	}
	at := now.UnixNano()
	for s.acknowledged < upTo {
		p := &s.pending[s.acknowledged&uint64(len(s.pending)-1)]
		if s.lent != nil && s.lent[s.frameOf(p.addr)] {
			return // a peer still needs it
		}
		why := wire.None
		if s.outcome != nil {
			why = s.outcome(s.acknowledged)
		}
		s.acknowledged++
		position := uint64(0)
		if s.numbered {
			position = s.before + s.acknowledged
		}
		s.end.Done(p.addr, p.session, p.sequence, position, why)
		s.times.Record(uint64(max(0, at-p.received)))
	}
}

// frameOf returns the number of a frame in the program's memory.
func (s *Source) frameOf(addr uint64) uint64 {
	return (addr - s.end.Part().Base()) / uint64(s.region.FrameSize())
}

// takeBack notes which frames the sink is done with.
func (s *Source) takeBack() {
	n := s.free.Len()
	for _, f := range s.free.Top(n) {
		s.lent[s.frameOf(f.Addr)] = false
	}
	s.free.Drop(n, n)
}

// next returns the sequence that is expected next of a session; 0: not known yet. All messages are acknowledged. A flow
// without a log does not know sessions of an earlier run: it goes on with the sequence from which the program does. So does
// one that takes each message once, also if it has not taken all before that: what it has not taken does not come again.
func (s *Source) next(session, from uint64) uint64 {
	if session == s.session && s.received > 0 {
		known := s.pending[(s.received-1)&uint64(len(s.pending)-1)].sequence + 1
		if s.once {
			return max(known, from)
		}
		return known
	}
	if s.sequences != nil {
		return s.sequences(session) + 1
	}
	if s.question != nil {
		return s.question.next(s.numberOf(session))
	}
	return max(from, 1)
}

// idle reports whether no message waits for its acknowledgement.
func (s *Source) idle() bool { return s.acknowledged == s.received && s.batch.Len == 0 }

// InFlight implements pipeline.Source: the frames that the sink has.
func (s *Source) InFlight() int {
	if s.copies {
		return s.total - s.free.Len() - s.batch.Len
	}
	return int(s.received-s.acknowledged) - s.batch.Len
}

// Supply implements pipeline.Source. Frames of the program that the sink is done with stay until their messages
// are acknowledged.
func (s *Source) Supply() {
	if !s.copies && s.lent == nil {
		n := s.free.Len()
		s.free.Drop(n, n)
	}
}

func (s *Source) Kick(time.Time) {
	s.end.Kick()
	s.receivedShown.Set(s.received)
	s.acknowledgedShown.Set(s.acknowledged)
}

func (s *Source) FDs(dst []unix.PollFd, blocked bool) []unix.PollFd {
	fd, wait := s.end.FD()
	s.ready = !wait && !blocked
	if fd >= 0 && !blocked {
		dst = append(dst, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	return dst
}

func (s *Source) Deadline(now time.Time) time.Time {
	if s.ready {
		return now
	}
	return now.Add(worker.MaxWait)
}

func (s *Source) Drained(uint64) bool { return s.batch.Len == 0 }

func (s *Source) Leave() bool {
	return s.acknowledged == s.received || s.delivered != nil && !s.delivered()
}

// Begin implements pipeline.Source. From now on the program may open a port.
func (s *Source) Begin() error {
	s.end.Begin()
	return nil
}

func (s *Source) StopReceiving(bool) error {
	s.stopped.Store(true)
	return nil
}

func (s *Source) Traffic() (packets, bytes uint64) { return s.packets.Load(), s.bytes.Load() }

func (s *Source) Announce() []any {
	a := []any{"program", s.end.Program()}
	if s.acknowledge != "" {
		a = append(a, "acknowledge", s.acknowledge, "position", s.before+1)
	}
	return a
}

func (s *Source) Observe(to *status.Flow) error {
	if s.acknowledge != "" {
		to.Log = &status.Log{
			Acknowledge: s.acknowledge, First: s.before + 1, Written: s.before + to.Written.Packets, Durable: s.before + to.Durable.Packets,
			Acknowledged: s.before + s.acknowledgedShown.Load(), Last: s.before + s.receivedShown.Load(), Lost: s.lost,
		}
	}
	to.Latency = s.times.Summary()
	to.Packets, to.Bytes = s.Traffic()
	to.CopiedBytes["attach"] = s.copied.Load()
	e := s.end.Stats()
	to.Submits = &status.Submits{Program: s.end.Program(), Trusted: s.lent != nil, Open: e.Open, Ports: e.Opened, Messages: e.Taken, Bytes: e.TakenBytes, Frames: e.Out}
	return nil
}

// CountLost implements pipeline.Source. The program still has messages that were not acknowledged.
func (s *Source) CountLost(to *status.Flow) {
	if s.delivered != nil {
		to.Dropped["not_acknowledged"] = s.receivedShown.Load() - s.acknowledgedShown.Load()
	}
}

func (s *Source) Shrink(q pipeline.Quota) (over bool) {
	if !s.copies {
		return false
	}
	return pipeline.ShrinkFrames(s.holder, &s.free, &s.total, max(q.Frames, 2*pipeline.Burst))
}

var errNoPrograms = errors.New("no program can attach: add attach.programs")
