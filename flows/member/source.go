package member

import (
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/group"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/replica"
	"github.com/unifiedd/unifiedd/flows/sink/disk"
	"github.com/unifiedd/unifiedd/flows/source/message"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/umem"
)

var _ pipeline.Source = (*Source)(nil)

// Source is the receive end of a member: its clients while it leads, else the link from the leader.
type Source struct {
	clients     *message.Source
	links       *replica.Links
	acknowledge string
	deposed     *pipeline.Deposed
	replicator  *replica.Replicator
	seat        *Seat
	region      *umem.Region
	writer      *disk.Writer // of the log; set before Begin
	self        uint32
	heartbeat   time.Duration
	base        uint64 // position before the run's first record
	landing     uint32

	room      func(position uint64) int // positions that are reserved
	batch     pipeline.Batch            // records of other members, and the one that begins an epoch
	leads     bool
	epoch     uint64 // that it leads
	first     uint64 // position of the record that began the epoch
	opened    bool   // clients may append
	polled    bool   // the links were polled in this round
	kicked    bool   // and the clients have their acknowledgements
	err       *pipeline.FirstError
	begun     atomic.Uint64 // epoch that this member has begun to lead; 0: none
	open      atomic.Bool   // and takes messages in it
	stopped   atomic.Bool
	do        func(func() error) error // runs a function on the worker's thread
	committed counter.Counter
	end       counter.Counter
}

// Returned is where the disk puts frames: see replica.Links.
func (s *Source) Returned() *umem.FreeList { return s.links.Returned() }

// LimitPositions limits the messages of clients: room returns how many may follow a position.
func (s *Source) LimitPositions(room func(position uint64) int) {
	s.clients.LimitPositions(func(position uint64) int { return min(room(position), s.links.Places()) })
	s.clients.AcknowledgeUpTo(s.safe, nil)
	s.room = room
}

// OnChange makes the worker call a function when what Member.Manifest writes has changed.
func (s *Source) OnChange(changed func()) { s.replicator.OnShow(changed) }

// Received returns how many records of this run are in the log. Any goroutine may call it.
func (s *Source) Received() uint64 { return s.end.Load() - s.base }

func (s *Source) Receive(sink pipeline.Output, open bool, now time.Time) (more bool) {
	if !sink.Write(s.clients.Batch(), now) || !sink.Write(&s.batch, now) || !open {
		return false
	}
	if s.leads {
		return s.opened && s.clients.Receive(sink, open, now)
	}
	b := &s.batch
	got := s.links.Recv(b.Frames[b.Len:])
	fresh := b.Frames[b.Len : b.Len+got]
	b.Len += got
	s.replicator.Took(fresh)
	at := now.UnixNano()
	for _, f := range fresh {
		s.clients.Recorded(s.region.At(f.Addr, protocol.HeaderLen))
		side := s.region.Side(f)
		side.Stamp, side.Clock = uint64(at), umem.SystemClock
	}
	return sink.Write(b, now) && got == len(b.Frames)
}

// Acknowledge implements pipeline.Acknowledger. Clients get acknowledgements of what is committed. Then
// followers get the newest records, or the leader the progress of this one. Both come before the disk
// gets anything, because the system calls for the disk take longer than the rest of the round.
func (s *Source) Acknowledge(now time.Time) {
	if s.leads && s.opened {
		before := s.clients.Acknowledged()
		s.clients.Acknowledge(now)
		if s.clients.Acknowledged() != before {
			s.clients.Supply() // sends credits with the acknowledgements
			s.clients.Kick(now)
			s.kicked = true
		}
	}
	s.links.Supply()
	s.err.Note(s.links.Poll(now))
	s.polled = true
}

// round tells the links how far the disk is, and learns what is committed.
func (s *Source) round(w *disk.Writer) {
	if s.leads {
		s.links.Recv(s.batch.Frames[s.batch.Len:]) // what followers say: a leader gets no records
	}
	to := s.replicator.Round(s.base+w.PacketsWritten(), s.base+w.PacketsDurable())
	s.committed.Set(to)
	s.end.Set(s.replicator.End())
	if !s.leads {
		s.room(s.end.Load()) // a follower is not limited, but its manifest reserves the positions, too
	}
	if s.leads && !s.opened && s.replicator.Open() {
		s.opened = true
		s.clients.Lead(s.first, uint32(s.epoch))
		s.open.Store(true)
		s.seat.changed.tell()
	}
}

// safe returns how many messages of this leadership are committed.
func (s *Source) safe() uint64 {
	if to := s.replicator.Committed(); to > s.first {
		return to - s.first
	}
	return 0
}

func (s *Source) Supply() {
	s.links.Supply()
	s.clients.Supply()
}

// Kick implements pipeline.Source. It does what Acknowledge has not done in this round.
func (s *Source) Kick(now time.Time) {
	if !s.polled {
		s.err.Note(s.links.Poll(now))
	}
	if !s.kicked {
		s.clients.Kick(now)
	}
	s.polled, s.kicked = false, false
}

func (s *Source) Accepted() uint64 { return s.end.Load() - s.base }

func (s *Source) Drained(rounds uint64) bool { return s.clients.Drained(rounds) && s.batch.Len == 0 }

func (s *Source) Leave() bool { return s.seat.running.Stop() && s.clients.Leave() }

func (s *Source) FDs(dst []unix.PollFd, blocked bool) []unix.PollFd {
	return s.clients.FDs(s.links.FDs(dst), blocked)
}

// Deadline implements pipeline.Source: the leader tells its followers that it lives.
func (s *Source) Deadline(now time.Time) time.Time {
	return now.Add(s.heartbeat / 2)
}

func (s *Source) Begin() error {
	s.seat.begin()
	return s.clients.Begin()
}

// StopReceiving implements pipeline.Source. The member takes no part in the group any more. Messages of
// clients that are not committed stay unacknowledged: the clients send them to the next leader.
func (s *Source) StopReceiving(failed bool) error {
	if !failed {
		s.seat.handOver()
	}
	s.stopped.Store(true)
	s.seat.changed.tell()
	s.seat.running.Stop()
	err := s.do(func() error {
		(&log{s}).StepDown()
		s.replicator.Stop()
		return s.links.EndAll(errStopped)
	})
	return errors.Join(err, s.clients.StopReceiving(failed))
}

var errStopped = errors.New("the member stops")

// Traffic implements pipeline.Source: messages of clients, and records of other members.
func (s *Source) Traffic() (packets, bytes uint64) {
	packets, bytes = s.clients.Traffic()
	l := s.links.Stats()
	return packets + l.Received, bytes + l.ReceivedBytes
}

func (s *Source) Check(now time.Time) (waits, ends error) {
	if err := s.seat.check(); err != nil {
		return nil, err
	}
	return s.clients.Check(now)
}

func (s *Source) Announce() []any {
	return append(s.clients.Announce(), "member", s.self, "position", s.base+1)
}

func (s *Source) Observe(to *status.Flow) error {
	err := s.clients.Observe(to)
	l, g := s.links.Stats(), s.seat.observe()
	g.Committed, g.Last, g.Recovering = s.committed.Load(), s.end.Load(), s.replicator.Shown().Recovering
	g.Sent, g.Copied, g.Received, g.Stale = l.Sent, l.CopiedBytes, l.Received, l.Stale
	g.Copies, g.Lacking, g.CopyRate, g.CopyLimit, g.Stalled = l.Copied, l.Lacking, l.CopyRate, l.CopyLimit, l.Stalled
	g.Refused += l.Refused
	g.Fenced, g.Cut = s.deposed.Fenced.Load(), s.deposed.Cut.Load()
	to.Group = g
	to.Packets, to.Bytes = s.Traffic()
	to.CopiedBytes["catch_up"] = l.CopiedBytes
	to.Log = &status.Log{
		Acknowledge: s.acknowledge, First: s.base + 1, Written: s.base + to.Written.Packets, Durable: s.base + to.Durable.Packets,
		Acknowledged: g.Committed, Last: g.Last,
	}
	return err
}

// Seat returns the member's part in its group.
func (s *Source) Seat() *Seat { return s.seat }

func (s *Source) CountLost(to *status.Flow) { s.clients.CountLost(to) }

func (s *Source) Shrink(q pipeline.Quota) (over bool) { return s.clients.Shrink(q) }

// Begin appends the record that begins an epoch. It implements replica.Log.
func (l *log) Begin(epoch uint64, c *group.Config) (bool, error) {
	s := l.Source
	if s.stopped.Load() {
		return false, nil // Run ends
	}
	var f [1]umem.Frame
	if s.batch.Len > 0 || s.clients.Batch().Len > 0 || !s.links.Room() || !s.clients.Free().Pop(f[:]) {
		return false, nil
	}
	start, _ := s.region.Start(f[0])
	position := s.replicator.End() + 1
	control := protocol.Control{Leader: s.self, Epoch: epoch, Members: c.Members.All()}
	f[0].Addr, f[0].Options = start+uint64(s.landing), 0
	f[0].Len = uint32(protocol.PutControl(s.region.At(f[0].Addr, protocol.MaxControlLen), &control, position, uint64(time.Now().UnixNano())))
	side := s.region.Side(f[0])
	side.Stamp, side.Clock = uint64(time.Now().UnixNano()), umem.SystemClock
	s.links.Begin(position)
	s.replicator.Lead(epoch, position, c)
	s.leads, s.epoch, s.first = true, epoch, position
	s.begun.Store(epoch)
	s.seat.changed.tell()
	s.batch.Frames[0], s.batch.Len = f[0], 1
	return true, nil
}

// StepDown ends the connections of clients. It implements replica.Log.
func (l *log) StepDown() {
	s := l.Source
	s.open.Store(false)
	s.begun.Store(0)
	s.leads, s.opened = false, false
	s.clients.StepDown()
}

// log implements replica.Log.
type log struct{ *Source }
