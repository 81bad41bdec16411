package replica

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/msg"
	"github.com/unifiedd/unifiedd/umem"
)

// Config configures Links.
type Config struct {
	Name     string       // for logs, errors and status
	Worker   *umem.Holder // holds the frames outside the links
	Endpoint *stream.Endpoint
	Links    int                 // the most links at a time
	Message  uint32              // the longest record in bytes, header included
	Landing  uint32              // offset of a record in its frame
	Window   int                 // receives for records
	Hold     int                 // records that the disk or a follower needs at most: a power of two
	Lag      int                 // records that a leader keeps for a follower alone at most: fewer than Hold
	Copies   int                 // frames for records that are read from the segments
	Stock    int                 // frames that stay on the Returned list
	Level    protocol.Durability // of committed records
	// Heartbeat is the longest time between two messages to a follower.
	Heartbeat time.Duration
	Free      *umem.FreeList
	Events    bool
}

// Links are the links of one member.
type Links struct {
	config  Config
	region  *umem.Region
	port    *msg.Port
	batcher rdma.Batcher // the device if it implements it; otherwise nil
	shared  rdma.SharedReceiveQueue
	queues  [2]rdma.CompletionQueue // of sends, of receives

	slots    []*Link // by the port's number
	links    int     // how many there are
	fences   uint64  // calls of EndAll
	own      *umem.Holder
	frames   []umem.Frame         // by slot: for messages without records
	posted   int                  // receives
	incoming *Link                // the link over which records come; nil: none
	shown    atomic.Pointer[Link] // incoming, for other goroutines
	held     held
	pace     pace // of the records that are offered
	batch    [batchSize]umem.Frame
	broken   [batchSize]int

	now       time.Time
	commits   uint64        // the committed position, for followers
	copies    umem.FreeList // frames for records from the segments
	stats     stats
	closed    bool
	heard     counter.Counter // when something last came over the incoming link: nanoseconds since 1970
	committed counter.Counter // as the leader says
}

const (
	batchSize = 64
	// sendDepth is the depth of a link's send queue.
	sendDepth = 256
	// controls is how many messages without records may be in flight on a link.
	controls = 16
)

// stats are counters that only the worker writes.
type stats struct {
	sent, sentBytes, received, receivedBytes, stale, refused, copied, copies counter.Counter
	lacking, copyRate, copyLimit                                             counter.Counter // see Stats
}

// Stats are counters since the links were opened.
type Stats struct {
	Sent, SentBytes         uint64 // records to followers
	Copied, CopiedBytes     uint64 // of those, read from the segments
	Received, ReceivedBytes uint64 // records from a leader
	Stale                   uint64 // messages of links that had ended
	Refused                 uint64 // messages that were not valid

	// Of the followers that get records from the segments, now:
	Lacking   uint64 // records that they lack
	CopyRate  uint64 // records a second that they get
	CopyLimit uint64 // records a second that they may get beside the clients; 0: no limit, or there are none
}

// Stats may be called from any goroutine.
func (l *Links) Stats() Stats {
	s := &l.stats
	return Stats{
		Sent: s.sent.Load(), SentBytes: s.sentBytes.Load(), Copied: s.copies.Load(), CopiedBytes: s.copied.Load(),
		Received: s.received.Load(), ReceivedBytes: s.receivedBytes.Load(), Stale: s.stale.Load(), Refused: s.refused.Load(),
		Lacking: s.lacking.Load(), CopyRate: s.copyRate.Load(), CopyLimit: s.copyLimit.Load(),
	}
}

// Open makes links without peers. It may be called from any thread while the worker does not run.
func Open(c Config) (*Links, error) {
	l := &Links{config: c, region: c.Endpoint.Region}
	if err := l.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open links of %s: %w", c.Name, err), l.Close())
	}
	return l, nil
}

func (l *Links) open() (err error) {
	c, d := &l.config, l.config.Endpoint.Device
	l.held.open(l.region, c.Hold) // Close uses it
	l.batcher, _ = d.(rdma.Batcher)
	p := msg.Config{Name: "links of " + c.Name, Worker: c.Worker, Memory: c.Endpoint.Memory, Landing: c.Landing, Events: c.Events}
	receives := c.Window + c.Links*controls
	if p.Shared, err = c.Endpoint.Domain.NewSharedReceiveQueue(rdma.SharedReceiveQueueConfig{Depth: receives, SGEs: 1}); err != nil {
		return err
	}
	l.shared = p.Shared
	if p.SendCQ, err = d.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: c.Links * sendDepth, Events: c.Events}); err != nil {
		return errors.Join(err, p.Shared.Close())
	}
	if p.ReceiveCQ, err = d.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: receives, Events: c.Events}); err != nil {
		return errors.Join(err, p.SendCQ.Close(), p.Shared.Close())
	}
	l.queues = [2]rdma.CompletionQueue{p.SendCQ, p.ReceiveCQ}
	if l.port, err = msg.Open(p); err != nil {
		return err
	}
	if l.own, err = c.Worker.Book().NewHolder(umem.OwnerRDMA, "links of "+c.Name); err != nil {
		return err
	}
	l.frames = make([]umem.Frame, c.Links)
	if n := l.own.Take(l.frames); n < len(l.frames) {
		return fmt.Errorf("the pool has %d of %d frames for progress messages: open a larger region", n, len(l.frames))
	}
	copies, take, kind := make([]umem.Frame, c.Copies), l.own.Take, "frames"
	if uint64(c.Landing)+uint64(c.Message) > uint64(l.region.FrameSize()) {
		take, kind = l.own.TakeExtents, "extents"
	}
	if n := take(copies); n < len(copies) {
		return fmt.Errorf("the pool has %d of %d %s for records from the segments: open a larger region", n, len(copies), kind)
	}
	l.copies.Push(copies...)
	l.slots = make([]*Link, c.Links)
	return nil
}

// Supply posts receives into free frames, so that leader and followers may send.
func (l *Links) Supply() {
	want := 0
	for _, k := range l.slots {
		if k != nil {
			want += controls
		}
	}
	if l.incoming != nil {
		want += l.config.Window
	}
	free := l.config.Free
	for l.posted < want && !l.closed {
		n := min(free.Len(), want-l.posted, batchSize)
		used := l.port.Supply(free.Top(n))
		free.Drop(n, used)
		if l.posted += used; used < n || used == 0 {
			return
		}
	}
}

// Recv returns whole, checked records of the incoming link, in order. The caller owns their frames. Poll is
// called in the same round.
func (l *Links) Recv(dst []umem.Frame) (total int) {
	for total < len(dst) {
		n := l.port.Recv(l.batch[:min(batchSize, len(dst)-total)])
		l.posted -= n
		for _, f := range l.batch[:n] {
			if l.receive(f) {
				dst[total] = f
				total++
			} else {
				f.Options = 0
				l.config.Free.Push(f)
			}
		}
		if n == 0 {
			break
		}
	}
	return total
}

// receive handles a message, and reports whether it is a record to pass on.
func (l *Links) receive(f umem.Frame) bool {
	k := l.linkOf(f)
	switch {
	case k == nil || k.over || !k.connected:
		if f.Options&umem.Failed == 0 {
			l.stats.stale.Add(1)
		}
		return false
	case f.Options&umem.Failed != 0:
		k.fail(l.port.Cause(k.slot))
		return false
	}
	message := l.region.Bytes(f)
	kind, why := protocol.KindOf(message)
	if why == protocol.None {
		switch {
		case kind == protocol.KindData && k == l.incoming:
			if why = k.record(l, message); why == protocol.None {
				l.stats.received.Add(1)
				l.stats.receivedBytes.Add(uint64(f.Len))
				l.heard.Set(uint64(l.now.UnixNano()))
				return true
			}
		case kind == protocol.KindCommit && k == l.incoming:
			why = k.commit(l, message)
		case kind == protocol.KindHave && k.feeds:
			why = k.progressed(l, message)
		default:
			why = protocol.BadKind
		}
	}
	if why != protocol.None {
		l.stats.refused.Add(1)
		k.fail(fmt.Errorf("member %d: %w", k.member, why))
	}
	return false
}

func (l *Links) linkOf(f umem.Frame) *Link {
	if n := int(l.region.Side(f).Queue); n < len(l.slots) {
		return l.slots[n]
	}
	return nil
}

// Poll handles completions, and sends what is due.
func (l *Links) Poll(now time.Time) error {
	if l.closed {
		return errClosed
	}
	l.now = now
	l.port.Reap(l.batch[:]) // returns none: links keep the frames that they send
	for n := l.port.Broken(l.broken[:]); n > 0; n = l.port.Broken(l.broken[:]) {
		for _, slot := range l.broken[:n] {
			if k := l.slots[slot]; k != nil {
				k.fail(l.port.Cause(slot))
			}
		}
	}
	l.measure()
	for _, k := range l.slots {
		switch {
		case k == nil || k.over || !k.connected:
		case k.feeds:
			l.sendRecords(k)
			l.sendCommit(k)
		default:
			l.sendHave(k)
		}
	}
	l.held.release(l)
	return l.kick()
}

// kick posts what is queued, to all followers together.
func (l *Links) kick() error {
	if l.batcher != nil {
		l.batcher.Begin()
		defer l.batcher.End()
	}
	return l.port.Kick()
}

// FD returns a descriptor that polls readable when Recv or Poll has work; -1 without Events.
func (l *Links) FD() int { return l.port.FD() }

var errClosed = errors.New("this member no longer takes part in its group")

// Close ends all links and gives all frames back to the region. After an error it may be called
// again.
func (l *Links) Close() error {
	if l.closed && l.port == nil {
		return nil
	}
	l.closed = true
	var err error
	switch {
	case l.port != nil:
		err = l.port.Close()
	default: // the port has not taken the queues
		for _, q := range l.queues {
			if q != nil {
				err = errors.Join(err, q.Close())
			}
		}
	}
	if err != nil {
		return fmt.Errorf("close the links of %s: %w", l.config.Name, err) // the device may still use frames
	}
	l.port = nil
	l.held.dropAll(l)
	if l.own != nil {
		l.own.Close()
	}
	return nil
}
