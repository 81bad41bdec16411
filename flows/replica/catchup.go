package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/umem"
)

// catchUp passes records from the segments of a log, which a goroutine reads, to the worker, and free
// frames back. It hands over to Links.held where the segments end.
type catchUp struct {
	next  uint64 // position of the first record
	empty chan []umem.Frame
	full  chan []copied
	until chan uint64 // the first position that the goroutine must not give
	quit  chan struct{}

	now    []copied // of the worker: to be posted
	flying []copied // posted, in order
	free   []umem.Frame
	bucket bucket
	lent   int    // frames that it has
	joined uint64 // value of until; 0: not said yet
	over   bool   // the link does not need it any more
	ended  bool   // the goroutine has ended
	stall  stall

	waits atomic.Bool // of the goroutine: it waits, and not for the disk
}

// copied is a record in a frame of its own. Without a frame it says that the segments have ended.
type copied struct {
	frame    umem.Frame
	position uint64
}

func newCatchUp(next uint64) *catchUp {
	return &catchUp{next: next, empty: make(chan []umem.Frame, batchSize), full: make(chan []copied, batchSize), until: make(chan uint64, 1), quit: make(chan struct{})}
}

// sendCopies posts records from the segments. It reports whether the link has come to the records in
// Links.held.
func (l *Links) sendCopies(k *Link) bool {
	c := k.copies
	l.lend(c)
	c.bucket.fill(&l.pace, l.now)
	for {
		for len(c.now) > 0 {
			one := c.now[0]
			switch {
			case one.frame.Len == 0: // the segments end here for now
				if c.joined == 0 {
					c.joined = l.held.last + 1
					k.needs = c.joined // from here on records are kept for it
					c.until <- c.joined
				}
			case c.joined > 0 && one.position >= c.joined: // read before the goroutine knew where to stop; it is kept in Links.held
				c.free = append(c.free, one.frame)
			case !l.mayPost(k) || c.joined == 0 && c.bucket.empty(): // once it has joined, records are kept for it: no limit
				return false
			case !l.post(k, one.frame.Addr, one.frame.Len, one.position, len(c.now) == 1 || one.position%copiesTold == 0 || one.position+1 == c.joined):
				return false
			default:
				l.stats.copied.Add(uint64(one.frame.Len))
				l.stats.copies.Add(1)
				c.bucket.take()
				c.flying = append(c.flying, one)
			}
			c.now = c.now[1:]
		}
		if c.joined > 0 && k.next >= c.joined {
			if len(c.flying) == 0 {
				k.copies = nil
				c.close(l)
			}
			return len(c.flying) == 0
		}
		select {
		case c.now = <-c.full:
		default:
			return false
		}
	}
}

// share is how many frames a link may have: those that catch up have the same number. So one whose follower is slow
// does not keep the others waiting.
func (l *Links) share() int { return max(1, l.config.Copies/max(1, l.catching)) }

// lend gives the goroutine frames, up to the link's share.
func (l *Links) lend(c *catchUp) {
	n := min(l.copies.Len(), l.share()-c.lent)
	if n <= 0 || c.ended {
		return
	}
	some := make([]umem.Frame, n)
	l.copies.Pop(some)
	select {
	case c.empty <- some:
		c.lent += n
	default: // it has not taken what it got before
		l.copies.Push(some...)
	}
}

// reuse gives the frames of records up to a position back to the goroutine.
func (l *Links) reuse(c *catchUp, upTo uint64) {
	n := 0
	for n < len(c.flying) && c.flying[n].position <= upTo {
		c.free = append(c.free, c.flying[n].frame)
		n++
	}
	c.flying = c.flying[n:]
	if over := min(c.lent-l.share(), len(c.free)); over > 0 { // another link catches up, too
		l.copies.Push(c.free[:over]...)
		c.free, c.lent = c.free[over:], c.lent-over
	}
	if c.ended {
		l.copies.Push(c.free...)
		c.free = nil
		return
	}
	if len(c.free) >= max(1, c.lent/2) || len(c.flying) == 0 && len(c.free) > 0 {
		select {
		case c.empty <- c.free:
			c.free = nil
		default:
		}
	}
}

// Return takes back the frames that CatchUp.Run has returned. What it has read is still sent, unless the
// link has ended.
func (l *Links) Return(c *CatchUp, left []umem.Frame) {
	l.copies.Push(left...)
	c.ended = true
	l.collect(c.catchUp)
}

// collect takes back the frames that are on the way to a goroutine that has ended, and from it.
func (l *Links) collect(c *catchUp) {
	for {
		select {
		case some := <-c.empty:
			l.copies.Push(some...)
			continue
		default:
		}
		if !c.over {
			return
		}
		select {
		case some := <-c.full:
			l.restore(some)
		default:
			return
		}
	}
}

// restore takes back the frames of records that are not sent.
func (l *Links) restore(some []copied) {
	for _, one := range some {
		if one.frame.Len > 0 {
			l.copies.Push(one.frame)
		}
	}
}

// close ends the goroutine, which returns its frames.
func (c *catchUp) close(l *Links) {
	if c.over {
		return
	}
	c.over = true
	l.catching--
	close(c.quit)
	l.copies.Push(c.free...)
	l.restore(c.now)
	l.restore(c.flying)
	c.now, c.flying, c.free = nil, nil, nil
	if c.ended {
		l.collect(c)
	}
}

// CatchUp is a link's part that reads segments. It belongs to one goroutine.
type CatchUp struct{ *catchUp }

// From returns the position of the first record that is wanted.
func (c *CatchUp) From() uint64 { return c.next }

// idle is how long a reader waits for records that are not on the disk yet.
const idle = 500 * time.Microsecond

// Records is a *journal.Reader.
type Records interface {
	Poll() (journal.Record, error) // io.EOF: there is no more yet
	Next() (journal.Record, error) // as Poll; it also finds out whether the next record is lost, which costs more
	Position() uint64              // of the next one
}

// Run reads records and passes them on until the link has come to the newest records, or has ended.
// It returns the frames that it has then. region is the Links' region, and landing their offset.
func (c *CatchUp) Run(ctx context.Context, r Records, region *umem.Region, landing uint32) (left []umem.Frame, err error) {
	rd := reading{CatchUp: c, ctx: ctx}
	for {
		rd.listen()
		if rd.stop > 0 && r.Position() >= rd.stop {
			rd.give()
			return rd.frames, nil
		}
		if len(rd.frames) == 0 && !rd.take() {
			return rd.frames, ctx.Err()
		}
		rec, err := r.Poll()
		if errors.Is(err, io.EOF) && rd.doubts(r.Position()) {
			rec, err = r.Next()
		}
		if errors.Is(err, io.EOF) {
			if !rd.atEnd(r.Position()) {
				return rd.frames, ctx.Err()
			}
			continue
		}
		if err != nil {
			rd.give()
			return rd.frames, err
		}
		f := rd.frames[len(rd.frames)-1]
		start, room := region.Start(f)
		if uint64(landing)+uint64(len(rec.Raw)) > uint64(room) {
			rd.give()
			return rd.frames, fmt.Errorf("record %d has %d bytes, and a frame has room for %d", rec.Position, len(rec.Raw), uint64(room)-uint64(landing))
		}
		rd.frames = rd.frames[:len(rd.frames)-1]
		f.Addr, f.Len = start+uint64(landing), uint32(len(rec.Raw))
		copy(region.Bytes(f), rec.Raw)
		rd.batch = append(rd.batch, copied{f, rec.Position})
		if len(rd.batch) == batchSize/2 && !rd.give() {
			return rd.frames, ctx.Err()
		}
	}
}

// reading is what CatchUp.Run holds. Its methods report false when the link or ctx has ended.
type reading struct {
	*CatchUp
	ctx    context.Context
	frames []umem.Frame // empty
	batch  []copied     // read, not passed on yet
	stop   uint64       // the position to stop at; 0: not said yet
	said   bool         // that the segments have ended
	awaits uint64       // position of a record that is not there yet
	since  time.Time    // since when
}

// doubtAfter is how long a record may be late before the reader finds out whether it is lost. It is longer than a record
// is in memory only.
const doubtAfter = time.Second

// doubts reports whether the next record is late.
func (rd *reading) doubts(next uint64) bool {
	now := time.Now()
	if rd.awaits != next {
		rd.awaits, rd.since = next, now
	}
	if now.Sub(rd.since) < doubtAfter {
		return false
	}
	rd.since = now
	return true
}

// give passes what was read on to the worker.
func (rd *reading) give() bool {
	if len(rd.batch) == 0 {
		return true
	}
	rd.waits.Store(true)
	defer rd.waits.Store(false)
	select {
	case rd.full <- rd.batch:
		rd.batch = nil
		return true
	case <-rd.quit:
	case <-rd.ctx.Done():
	}
	for _, one := range rd.batch {
		if one.frame.Len > 0 {
			rd.frames = append(rd.frames, one.frame)
		}
	}
	return false
}

// take passes on what was read, and waits for empty frames.
func (rd *reading) take() bool {
	if !rd.give() {
		return false
	}
	rd.waits.Store(true)
	defer rd.waits.Store(false)
	select {
	case rd.frames = <-rd.empty:
		return true
	case <-rd.quit:
	case <-rd.ctx.Done():
	}
	return false
}

// listen learns where to stop. A log that grows as fast as it is read does not end before.
func (rd *reading) listen() {
	select {
	case rd.stop = <-rd.until:
	default:
	}
}

// atEnd tells the worker, once, that the segments end before next, and waits a moment for more.
func (rd *reading) atEnd(next uint64) bool {
	if !rd.said {
		rd.said = true
		rd.batch = append(rd.batch, copied{position: next})
	}
	if !rd.give() {
		return false
	}
	rd.waits.Store(true)
	defer rd.waits.Store(false)
	select {
	case rd.stop = <-rd.until:
	case <-time.After(idle):
	case <-rd.quit:
		return false
	case <-rd.ctx.Done():
		return false
	}
	return true
}
