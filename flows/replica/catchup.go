package replica

import (
	"context"
	"errors"
	"io"
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
	given  bool   // frames were given to the goroutine
	joined uint64 // value of until; 0: not said yet
	over   bool   // the link does not need it any more
	ended  bool   // the goroutine has ended
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
	if !c.given {
		c.given = true
		l.lend(c)
	}
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
			case !l.mayPost(k) || !l.post(k, one.frame.Addr, one.frame.Len, one.position, true):
				return false
			default:
				l.stats.copied.Add(uint64(one.frame.Len))
				c.flying = append(c.flying, one)
			}
			c.now = c.now[1:]
		}
		if c.joined > 0 && k.next == c.joined {
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

// lend gives the goroutine frames.
func (l *Links) lend(c *catchUp) {
	n := min(l.copies.Len(), batchSize)
	if n == 0 {
		c.given = false // another link has all
		return
	}
	some := make([]umem.Frame, n)
	l.copies.Pop(some)
	c.empty <- some
}

// reuse gives the frames of records up to a position back to the goroutine.
func (l *Links) reuse(c *catchUp, upTo uint64) {
	n := 0
	for n < len(c.flying) && c.flying[n].position <= upTo {
		c.free = append(c.free, c.flying[n].frame)
		n++
	}
	c.flying = c.flying[n:]
	if c.ended {
		l.copies.Push(c.free...)
		c.free = nil
		return
	}
	if len(c.free) >= batchSize/2 || len(c.flying) == 0 && len(c.free) > 0 {
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
	Position() uint64              // of the next one
}

// Run reads records and passes them on until the link has come to the newest records, or has ended.
// It returns the frames that it has then. region is the Links' region, and landing their offset.
func (c *CatchUp) Run(ctx context.Context, r Records, region *umem.Region, landing uint32) (left []umem.Frame, err error) {
	var frames []umem.Frame
	var batch []copied
	until, said := uint64(0), false
	give := func() bool {
		if len(batch) == 0 {
			return true
		}
		select {
		case c.full <- batch:
			batch = nil
			return true
		case <-c.quit:
		case <-ctx.Done():
		}
		for _, one := range batch {
			if one.frame.Len > 0 {
				frames = append(frames, one.frame)
			}
		}
		return false
	}
	for {
		if until > 0 && r.Position() >= until {
			give()
			return frames, nil
		}
		if len(frames) == 0 {
			if !give() {
				return frames, nil
			}
			select {
			case frames = <-c.empty:
			case <-c.quit:
				return frames, nil
			case <-ctx.Done():
				return frames, ctx.Err()
			}
		}
		rec, err := r.Poll()
		switch {
		case errors.Is(err, io.EOF):
			if !said {
				said = true
				batch = append(batch, copied{position: r.Position()})
			}
			if !give() {
				return frames, nil
			}
			select {
			case until = <-c.until:
			case <-c.quit:
				return frames, nil
			case <-ctx.Done():
				return frames, ctx.Err()
			case <-time.After(idle):
			}
			continue
		case err != nil:
			give()
			return frames, err
		}
		f := frames[len(frames)-1]
		frames = frames[:len(frames)-1]
		f.Len = uint32(len(rec.Raw))
		f.Addr, _ = region.Start(f)
		f.Addr += uint64(landing)
		copy(region.Bytes(f), rec.Raw)
		batch = append(batch, copied{f, rec.Position})
		if len(batch) == batchSize/2 && !give() {
			return frames, nil
		}
	}
}
