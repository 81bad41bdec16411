package flows

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/flows/segment"
	"github.com/unifiedd/unifiedd/umem"
)

// unwritten are batches for which the disk had no room. They are written again,
// to the same place, until there is. It belongs to the worker's thread.
type unwritten struct {
	frames  []umem.Frame // whole messages; their Side says where they belong
	keeping bool         // whether those of the message that is coming back are such frames
	last    uint64       // number of the last batch there was no room for
	next    time.Time    // of the next attempt
	trouble atomic.Pointer[error]
}

// full reports whether a batch failed for want of room that somebody may make. A device
// has none either once it is gone.
func (o *output) full(number uint64, err error) bool {
	_, ring := o.store.Numbers()
	return segment.NoSpace(err) && (!ring || o.track.ring[number%window].Segment.Target.Health() == nil)
}

// keepUnwritten keeps a frame that came back because the disk is full, and
// reports whether it is such a one. All frames of a message come back alike.
func (o *output) keepUnwritten(f umem.Frame) bool {
	if f.Options&umem.Failed == 0 {
		return false
	}
	u := &o.unwritten
	if number := o.region.Side(f).Token; number != 0 {
		if u.keeping = o.full(number, f.Err()); u.keeping {
			u.last = max(u.last, number)
			o.lament(number, f.Err())
		}
	}
	if !u.keeping {
		return false
	}
	f.Options &= umem.KernelOptions
	u.frames = append(u.frames, f)
	return true
}

// lament notes which write has no room, once for each time the disk is full.
func (o *output) lament(number uint64, err error) {
	if o.unwritten.trouble.Load() != nil {
		return
	}
	m := o.track.ring[number%window]
	err = fmt.Errorf("write to %s before offset %d: %w (make room; until then %s)",
		m.Segment.Path(), m.Segment.Base+m.End, err, o.store.Consequence())
	o.unwritten.trouble.Store(&err)
}

// writeAgain sends what the disk had no room for, once in a while, and says when
// all of it is written.
func (o *output) writeAgain(now time.Time) {
	u := &o.unwritten
	if u.last != 0 && o.track.written.Number >= u.last {
		u.last = 0
		u.trouble.Store(nil)
	}
	if len(u.frames) == 0 || now.Before(u.next) {
		return
	}
	rest := u.frames
	for len(rest) > 0 {
		n, _ := umem.PacketLen(rest)
		if o.queue.Send(rest[:n]) == 0 {
			break
		}
		rest = rest[n:]
	}
	u.frames = u.frames[:copy(u.frames, rest)]
	u.next = now.Add(segment.RetryInterval)
}
