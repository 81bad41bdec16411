package replica

import (
	"math"

	"github.com/unifiedd/unifiedd/umem"
)

// held is the newest records of a leader: those that the disk or a follower still needs. It is a ring
// by position.
type held struct {
	items       []item
	first, last uint64   // positions; first is last+1 if there is none
	of          []uint32 // by number of a frame: its item, plus 1; 0: none; or dropped
	frameSize   uint64
	returned    umem.FreeList // frames that the disk is done with
	waiting     int           // records that only followers need
	one         [1]umem.Frame
	others      []umem.Frame
	ending      int           // links that end, and that may still read frames of records that Begin has dropped
	resting     umem.FreeList // these frames
}

// dropped is in held.of for a frame whose record Begin has dropped before the disk was done with it.
const dropped = math.MaxUint32

// item is a record.
type item struct {
	frame   umem.Frame // with the record's address and length
	written bool       // the disk is done with the frame
}

func (h *held) open(r *umem.Region, records int) {
	h.items = make([]item, records)
	h.frameSize = uint64(r.FrameSize())
	h.of = make([]uint32, r.Size()/h.frameSize)
	h.first = 1
}

func (h *held) at(position uint64) *item { return &h.items[position&uint64(len(h.items)-1)] }

// Begin says that the next record to be offered has a position. Nothing is kept. Frames that links may
// still read are free when these links are detached.
func (l *Links) Begin(position uint64) {
	h := &l.held
	for _, k := range l.slots {
		if k != nil && k.feeds && !k.resting {
			k.resting = true
			h.ending++
		}
	}
	for h.first <= h.last {
		one := h.at(h.first)
		h.drop(l)
		if !one.written {
			start, _ := l.region.Start(one.frame)
			h.of[start/h.frameSize] = dropped
		}
	}
	h.first, h.last = position, position-1
	l.pace.begin(h.last)
}

// free gives up a frame in which a record was.
func (h *held) free(l *Links, f umem.Frame) {
	f.Options = 0
	if h.ending > 0 {
		h.resting.Push(f)
		return
	}
	l.config.Free.Push(f)
}

// detached says that a link reads nothing any more.
func (h *held) detached(l *Links, k *Link) {
	if !k.resting {
		return
	}
	if h.ending--; h.ending == 0 {
		l.config.Free.Push(h.resting.Top(h.resting.Len())...)
		h.resting.Drop(h.resting.Len(), h.resting.Len())
	}
}

// Returned is the list on which the disk puts frames that it does not need any more. It may also take
// frames from the list, if Sort was called since it has put some there: there are Config.Stock.
func (l *Links) Returned() *umem.FreeList { return &l.held.returned }

// Sort takes frames of records from the Returned list.
func (l *Links) Sort() { l.held.release(l) }

// Places returns how many more records may be offered now.
func (l *Links) Places() int {
	if !l.Room() {
		return 0
	}
	h := &l.held
	return len(h.items) - 1 - int(h.last-h.first+1)
}

// Room reports whether another record may be offered. A follower that keeps more records than the
// limit loses its link. It then gets what it lacks from the segments.
func (l *Links) Room() bool {
	h := &l.held
	full := func() bool { return int(h.last-h.first)+1 >= len(h.items) }
	if !full() && h.waiting <= l.config.Lag {
		return true
	}
	if h.release(l); h.waiting > l.config.Lag && h.at(h.first).written {
		for _, k := range l.slots {
			if k != nil && k.feeds && !k.over && k.needs <= h.first {
				_ = l.End(k, errBehind) // the device is gone if that fails: Poll says so
			}
		}
	}
	return !full()
}

// Offer gives the next record to the followers. The links keep its frame until the disk has returned
// it and no follower needs it. There must be Room.
func (l *Links) Offer(f umem.Frame) {
	h := &l.held
	h.last++
	*h.at(h.last) = item{frame: f}
	start, _ := l.region.Start(f)
	h.of[start/h.frameSize] = uint32(h.last&uint64(len(h.items)-1)) + 1
}

// release gives frames back that nobody needs.
func (h *held) release(l *Links) {
	h.others = h.others[:0]
	for h.returned.Pop(h.one[:]) {
		f := h.one[0]
		start, _ := l.region.Start(f)
		if n := h.of[start/h.frameSize]; n == dropped {
			h.of[start/h.frameSize] = 0
			h.free(l, f)
			continue
		} else if n != 0 {
			one := &h.items[n-1]
			one.written = true
			h.waiting++
			continue
		}
		f.Options = 0
		h.others = append(h.others, f)
	}
	kept := min(len(h.others), l.config.Stock)
	h.returned.Push(h.others[:kept]...)
	l.config.Free.Push(h.others[kept:]...)
	needed := l.needed()
	for h.first <= h.last && h.first < needed && h.at(h.first).written {
		h.drop(l)
	}
}

// drop gives up the oldest record.
func (h *held) drop(l *Links) {
	one := h.at(h.first)
	start, _ := l.region.Start(one.frame)
	h.of[start/h.frameSize] = 0
	if one.written { // else the disk returns the frame
		h.waiting--
		h.free(l, one.frame)
	}
	h.first++
}

// dropAll gives up all records when the links are closed.
func (h *held) dropAll(l *Links) {
	for _, k := range l.slots {
		if k != nil {
			h.detached(l, k)
		}
	}
	h.release(l)
	for h.first <= h.last {
		h.drop(l)
	}
}

// needed returns the position of the oldest record that a follower needs.
func (l *Links) needed() uint64 {
	least := l.held.last + 1
	for _, k := range l.slots {
		if k != nil && k.feeds {
			least = min(least, k.needs)
		}
	}
	return least
}
