package replica

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/umem"
)

// Config configures Links.
type Config struct {
	Name     string       // for logs, errors and status
	Worker   *umem.Holder // holds the frames outside the links
	Endpoint *stream.Endpoint
	Others   []*stream.Endpoint  // of the further paths, in order
	Links    int                 // the most links at a time, over each path
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
	config Config
	region *umem.Region
	paths  []*lane // in order

	slots    []*Link // those of the first path, then those of the next one
	fences   uint64  // calls of EndAll
	own      *umem.Holder
	frames   []umem.Frame         // by slot: for messages without records
	incoming *Link                // the link over which records come; nil: none
	shown    atomic.Pointer[Link] // incoming, for other goroutines
	held     held
	pace     pace // of the records that are offered
	batch    [batchSize]umem.Frame
	broken   [batchSize]int

	now       time.Time
	commits   uint64        // the committed position, for followers
	copies    umem.FreeList // frames for records from the segments
	catching  int           // links that get such records
	stallTime time.Duration // as the constant; tests shorten it
	stats     stats
	closed    bool
	gone      bool            // Close has succeeded
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
	sent, sentBytes, received, receivedBytes, stale, refused, copied, copies, stalled counter.Counter
	lacking, copyRate, copyLimit                                                      counter.Counter // see Stats
}

// Stats are counters since the links were opened.
type Stats struct {
	Sent, SentBytes         uint64 // records to followers
	Copied, CopiedBytes     uint64 // of those, read from the segments
	Received, ReceivedBytes uint64 // records from a leader
	Stale                   uint64 // messages of links that had ended
	Refused                 uint64 // messages that were not valid
	Stalled                 uint64 // links that were ended because they sent no record for too long, though the follower lacked some

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
		Received: s.received.Load(), ReceivedBytes: s.receivedBytes.Load(), Stale: s.stale.Load(), Refused: s.refused.Load(), Stalled: s.stalled.Load(),
		Lacking: s.lacking.Load(), CopyRate: s.copyRate.Load(), CopyLimit: s.copyLimit.Load(),
	}
}

// Open makes links without peers. It may be called from any thread while the worker does not run.
func Open(c Config) (*Links, error) {
	l := &Links{config: c, region: c.Endpoint.Region, stallTime: stallTime}
	for _, e := range append([]*stream.Endpoint{c.Endpoint}, c.Others...) {
		l.paths = append(l.paths, &lane{number: len(l.paths), endpoint: e})
	}
	if err := l.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open links of %s: %w", c.Name, err), l.Close())
	}
	return l, nil
}

func (l *Links) open() (err error) {
	c := &l.config
	l.held.open(l.region, c.Hold) // Close uses it
	for _, p := range l.paths {
		if err := p.open(c); err != nil {
			return err
		}
	}
	if l.own, err = c.Worker.Book().NewHolder(umem.OwnerRDMA, "links of "+c.Name); err != nil {
		return err
	}
	l.frames = make([]umem.Frame, c.Links*len(l.paths))
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
	l.slots = make([]*Link, c.Links*len(l.paths))
	return nil
}

// Supply posts receives into free frames, so that leader and followers may send.
func (l *Links) Supply() {
	for _, p := range l.paths {
		l.supply(p)
	}
}

// supply posts the receives of a path.
func (l *Links) supply(p *lane) {
	want := p.links * controls
	if l.incoming != nil && l.incoming.path == p {
		want += l.config.Window
	}
	free := l.config.Free
	for p.posted < want && !l.closed {
		n := min(free.Len(), want-p.posted, batchSize)
		used := p.port.Supply(free.Top(n))
		free.Drop(n, used)
		if p.posted += used; used < n || used == 0 {
			return
		}
	}
}

// Recv returns whole, checked records of the incoming link, in order. The caller owns their frames. Poll is
// called in the same round.
func (l *Links) Recv(dst []umem.Frame) (total int) {
	for _, p := range l.paths {
		total += l.recv(p, dst[total:])
	}
	return total
}

// recv is Recv for one path. Records come over one link at a time, so those of one path follow those of another.
func (l *Links) recv(p *lane, dst []umem.Frame) (total int) {
	for total < len(dst) {
		n := p.port.Recv(l.batch[:min(batchSize, len(dst)-total)])
		p.posted -= n
		for _, f := range l.batch[:n] {
			if l.receive(p, f) {
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

// receive handles a message of a path, and reports whether it is a record to pass on.
func (l *Links) receive(p *lane, f umem.Frame) bool {
	k := l.linkOf(p, f)
	switch {
	case k == nil || k.over:
		if f.Options&umem.Failed == 0 {
			l.stats.stale.Add(1)
		}
		return false
	case f.Options&umem.Failed != 0:
		k.fail(p.port.Cause(k.number))
		return false
	}
	message := l.region.Bytes(f)
	kind, why := protocol.KindOf(message)
	if why == protocol.None {
		switch {
		case kind == protocol.KindData && k == l.incoming && !k.connected:
			why = protocol.BeyondCredit // this side has given none yet
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

func (l *Links) linkOf(p *lane, f umem.Frame) *Link {
	if n := int(l.region.Side(f).Queue); n < l.config.Links {
		return l.slots[l.slot(p, n)]
	}
	return nil
}

// slot returns the place in slots of a link, by its number in the port of a path.
func (l *Links) slot(p *lane, number int) int { return p.number*l.config.Links + number }

// Poll handles completions, and sends what is due.
func (l *Links) Poll(now time.Time) error {
	if l.closed {
		return errClosed
	}
	l.now = now
	for _, p := range l.paths {
		l.reap(p)
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

// reap handles the completions of a path.
func (l *Links) reap(p *lane) {
	p.port.Reap(l.batch[:]) // returns none: links keep the frames that they send
	for n := p.port.Broken(l.broken[:]); n > 0; n = p.port.Broken(l.broken[:]) {
		for _, number := range l.broken[:n] {
			if k := l.slots[l.slot(p, number)]; k != nil {
				k.fail(p.port.Cause(number))
			}
		}
	}
}

// kick posts what is queued.
func (l *Links) kick() error {
	var err error
	for _, p := range l.paths {
		if e := p.kick(); e != nil {
			err = errors.Join(err, e)
		}
	}
	return err
}

// FDs appends descriptors that poll readable when Recv or Poll has work; none without Events.
func (l *Links) FDs(dst []unix.PollFd) []unix.PollFd {
	for _, p := range l.paths {
		if fd := p.port.FD(); fd >= 0 {
			dst = append(dst, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		}
	}
	return dst
}

var errClosed = errors.New("this member no longer takes part in its group")

// Close ends all links and gives all frames back to the region. After an error it may be called
// again.
func (l *Links) Close() error {
	if l.closed && l.gone {
		return nil
	}
	l.closed = true
	var errs []error
	for _, p := range l.paths {
		errs = append(errs, p.close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close the links of %s: %w", l.config.Name, err) // the device may still use frames
	}
	l.gone = true
	l.held.dropAll(l)
	if l.own != nil {
		l.own.Close()
	}
	return nil
}
