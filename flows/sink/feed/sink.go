package feed

import (
	"log/slog"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/feed"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/stage"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/umem"
)

var _ pipeline.Sink = (*Sink)(nil)

// Sink puts the messages of a feed in order, in front of another sink.
type Sink struct {
	pipeline.FullSink // what gets the messages: what is not here is its own

	region  *umem.Region
	free    *umem.FreeList // of the source
	offset  uint64         // of a message in its frame
	arbiter *feed.Arbiter
	lines   []config.FeedLine
	ends    []netip.AddrPort // where the packets of each line go
	server  server
	begun   time.Time
	log     *slog.Logger
	out     pipeline.Batch // messages for inner
	arrival umem.Side      // of the packet that is read

	empty, others, copied counter.Counter
	sessions, restarts    uint64 // that Check has logged
}

// Open makes the stage in front of a sink. Messages are behind umem.PacketHeadroom and headroom bytes of their frames.
// The calling thread must be in the network namespace of the retransmission server.
func Open(e *pipeline.Env, free *umem.FreeList, inner pipeline.Sink, headroom uint32) (*Sink, error) {
	m := e.Flow.Feed()
	s := &Sink{FullSink: pipeline.Complete(inner), region: e.Region, free: free, offset: umem.PacketHeadroom + uint64(headroom), lines: m.Lines, begun: time.Now(), log: e.Log, server: server{fd: -1}}
	s.out.Frames = make([]umem.Frame, pipeline.Burst)
	longest := int(e.Region.FrameSize()) - int(s.offset) // then each message fits a frame, also one of the server
	c := feed.Config{Lines: len(m.Lines), Held: m.Hold, Longest: longest, Gap: m.Gap, Counter: counterOf(m)}
	for _, l := range m.Lines {
		s.ends = append(s.ends, netip.AddrPortFrom(l.Address, uint16(l.Port)))
	}
	if m.Server != "" {
		c.Lines, c.Server, c.Ask = c.Lines+1, true, m.Ask
		if err := s.server.open(m.Server, longest); err != nil {
			return nil, err
		}
		e.Undo.Add(s.server.close)
	}
	var err error
	s.arbiter, err = feed.New(c)
	return s, err
}

// counterOf returns how packets are numbered; nil: as MoldUDP64 does.
func counterOf(m *config.Feed) *feed.Counter {
	if m.Counter == nil {
		return nil
	}
	return &feed.Counter{Offset: m.Counter.Offset, Width: m.Counter.Width, Little: m.Counter.Order == config.LittleEndian}
}

func (s *Sink) Write(b *pipeline.Batch, now time.Time) bool {
	if !s.give(now) {
		return false
	}
	s.arbiter.At(now.Sub(s.begun))
	done, all := 0, true
	for all {
		n, _ := umem.PacketLen(b.Frames[done:b.Len])
		if n == 0 {
			break
		}
		packet := b.Frames[done : done+n]
		s.read(packet)
		if all = s.give(now); !all {
			s.arbiter.Keep()
		}
		s.free.Push(packet...)
		done += n
	}
	b.Drop(done)
	return all
}

// read passes a packet to the arbiter.
func (s *Sink) read(packet []umem.Frame) {
	s.arrival = *s.region.Side(packet[0])
	d, _ := stage.UDP(s.region.Bytes(packet[0])) // without a datagram, it is for nobody
	if line := s.line(d); line >= 0 {
		s.arbiter.Receive(line, d.Payload)
	} else {
		s.others.Add(1)
	}
}

// line returns the line to which a datagram belongs, or -1.
func (s *Sink) line(d stage.Datagram) int {
	end := netip.AddrPortFrom(d.Destination, d.Port)
	for i := range s.ends {
		if s.ends[i] == end {
			return i
		}
	}
	return -1
}

// give passes on the messages that can be given out. It returns false if the sink is blocked, or if no frame is free
// because the sink has all of them.
func (s *Sink) give(now time.Time) bool {
	for {
		if s.out.Len == len(s.out.Frames) && !s.FullSink.Write(&s.out, now) {
			return false
		}
		if s.free.Len() == 0 {
			if s.FullSink.Write(&s.out, now); s.free.Len() == 0 {
				s.Block()
				return false
			}
			continue
		}
		m, ok := s.arbiter.Next()
		if !ok {
			return s.out.Len == 0 || s.FullSink.Write(&s.out, now)
		}
		s.put(m)
	}
}

// put copies a message to a free frame. It fits: its packet was no longer than what is behind offset.
func (s *Sink) put(m []byte) {
	if len(m) == 0 {
		s.empty.Add(1)
		return
	}
	var one [1]umem.Frame
	s.free.Pop(one[:])
	size := uint64(s.region.FrameSize())
	f := umem.Frame{Addr: one[0].Addr&^(size-1) + s.offset, Len: uint32(len(m))}
	copy(s.region.At(f.Addr, uint64(f.Len)), m)
	*s.region.Side(f) = s.arrival
	s.copied.Add(uint64(len(m)))
	s.out.Frames[s.out.Len] = f
	s.out.Len++
}

// Flush implements pipeline.Sink. It also reads what the retransmission server sent, and looks after gaps.
func (s *Sink) Flush(open bool, now time.Time) {
	if s.give(now) {
		s.after(now)
	}
	s.FullSink.Flush(open, now)
}

// after looks after gaps, when everything that can be given out has been.
func (s *Sink) after(now time.Time) {
	for n := 0; n < pipeline.Burst && s.arbiter.Asked(); n++ { // else there is no call of the kernel
		answer := s.server.receive()
		if answer == nil {
			break
		}
		s.arrival = umem.Side{Stamp: uint64(now.UnixNano()), Clock: umem.SystemClock}
		s.arbiter.Receive(len(s.lines), answer)
		if !s.give(now) {
			s.arbiter.Keep()
			return
		}
	}
	if first, n := s.arbiter.Tick(now.Sub(s.begun)); n > 0 {
		s.server.ask(s.arbiter.Session(), first, n)
	}
	s.give(now)
}

func (s *Sink) Deadline(now time.Time) time.Time {
	at := s.FullSink.Deadline(now)
	if wait, open := s.arbiter.Wait(now.Sub(s.begun)); open && now.Add(wait).Before(at) {
		return now.Add(wait)
	}
	return at
}

// FDs implements pipeline.Sink. Answers that nobody waits for do not wake the worker.
func (s *Sink) FDs(dst []unix.PollFd) []unix.PollFd {
	dst = s.FullSink.FDs(dst)
	if s.arbiter.Asked() {
		dst = append(dst, unix.PollFd{Fd: int32(s.server.fd), Events: unix.POLLIN})
	}
	return dst
}

// Drain implements pipeline.Sink. Nothing fills a gap any more.
func (s *Sink) Drain(now time.Time) (bool, error) {
	s.arbiter.Finish()
	if !s.give(now) {
		return false, nil
	}
	return s.FullSink.Drain(now)
}

// Check implements pipeline.Sink. It logs sessions that have begun since the last call.
func (s *Sink) Check(t time.Time) (waits, ends error) {
	a := s.arbiter.Stats()
	if a.Sessions > s.sessions {
		say, text := s.log.Info, "a session of the feed has begun"
		if a.Restarts > s.restarts {
			say, text = s.log.Warn, "the sender of the feed has restarted: its messages are passed on"
		}
		say(text, "session", a.Session, "sessions", a.Sessions, "restarts", a.Restarts)
		s.sessions, s.restarts = a.Sessions, a.Restarts
	}
	return s.FullSink.Check(t)
}

func (s *Sink) Observe(to *status.Flow) error {
	err := s.FullSink.Observe(to)
	a := s.arbiter.Stats()
	to.Feed = &status.Feed{
		Session: a.Session, Messages: a.Given, Lost: a.Lost, Gaps: a.Gaps, Requests: a.Requests, Unsent: s.server.unsent.Load(),
		Sessions: a.Sessions, Restarts: a.Restarts, Ends: a.Ends, Empty: s.empty.Load(), Others: s.others.Load(),
	}
	for i, l := range a.Lines {
		one := status.FeedLine{Name: "server", Wins: l.Wins, Duplicates: l.Duplicates, Missing: l.Missing, Late: l.Late, Refused: l.Refused}
		if i < len(s.lines) {
			one.Name = s.lines[i].Name
		}
		to.Feed.Lines = append(to.Feed.Lines, one)
	}
	to.CopiedBytes["feed"] += s.copied.Load()
	return err
}

// CountFailed implements pipeline.Sink. The sink behind has got messages, and not packets.
func (s *Sink) CountFailed(to *status.Flow, _ uint64) {
	s.FullSink.CountFailed(to, s.arbiter.Stats().Given-s.empty.Load())
}

func (s *Sink) Announce() []any { return append(s.FullSink.Announce(), "lines", len(s.lines)) }
