package powercut

import (
	"fmt"
	"math/rand/v2"
)

// Fate says which of the writes that no flush made durable survive.
type Fate int

// The fates.
const (
	Lost  Fate = iota // no write survives
	Kept              // all survive
	some              // each survives or not, at random
	late              // earlier writes are lost, later ones survive
	early             // earlier writes survive, later ones are lost
	torn              // some survive, and some of those only in some sectors
	fates
)

func (f Fate) String() string {
	return [...]string{"lost", "kept", "some", "late", "early", "torn"}[f]
}

// Cut is one state that a power cut can leave.
type Cut struct {
	At      int  // entries before the cut
	Durable int  // entries up to the last flush before the cut
	Fate    Fate // of the others
	Pending int  // writes among the others
	Kept    int  // of those, in whole or in part
	Torn    int  // of those, in part
}

func (c Cut) String() string {
	return fmt.Sprintf("cut behind entry %d, %d behind the last flush: of %d pending writes %d kept, %d of them torn (%v)",
		c.At, c.At-c.Durable, c.Pending, c.Kept, c.Torn, c.Fate)
}

// flushed returns how many entries before a cut are certainly durable.
func (l *Log) flushed(at int) int {
	for n := at; n > 0; n-- {
		if l.Entries[n-1].Flags&flush != 0 {
			return n
		}
	}
	return 0
}

// Cut changes image, the disk before the record, into a state that a cut after at entries can leave.
func (l *Log) Cut(image []byte, at int, f Fate, r *rand.Rand) Cut {
	return l.cut(image, at, l.flushed(at), f, r)
}

// cut is Cut with a given number of durable entries.
func (l *Log) cut(image []byte, at, durable int, f Fate, r *rand.Rand) Cut {
	c := Cut{At: at, Durable: durable, Fate: f}
	for _, e := range l.Entries[:durable] {
		e.apply(image)
	}
	pending := l.Entries[durable:at]
	border := r.IntN(len(pending) + 1)
	for i, e := range pending {
		if e.Length == 0 {
			continue
		}
		c.Pending++
		switch {
		case e.Flags&fua != 0:
			e.apply(image)
		case !f.keeps(i, border, r):
			continue
		case f == torn && e.Length > l.Sector && r.IntN(2) == 0:
			e.tear(image, l.Sector, r)
			c.Torn++
		default:
			e.apply(image)
		}
		c.Kept++
	}
	return c
}

// keeps decides whether pending entry i survives.
func (f Fate) keeps(i, border int, r *rand.Rand) bool {
	switch f {
	case Lost:
		return false
	case Kept:
		return true
	case late:
		return i >= border
	case early:
		return i < border
	default:
		return r.IntN(2) == 0
	}
}

// apply applies the entry to a disk.
func (e Entry) apply(image []byte) { e.part(image, 0, e.Length) }

// part applies length bytes of the entry, beginning at offset from in the entry.
func (e Entry) part(image []byte, from, length int64) {
	to := image[e.Offset+from:][:length]
	if e.Data == nil {
		clear(to)
		return
	}
	copy(to, e.Data[from:])
}

// tear applies some sectors of the entry: the first ones, the last ones or any.
func (e Entry) tear(image []byte, sector int64, r *rand.Rand) {
	n := e.Length / sector
	how, border := r.IntN(3), 1+r.Int64N(n-1)
	for i := range n {
		if how == 0 && i < border || how == 1 && i >= border || how == 2 && r.IntN(2) == 0 {
			e.part(image, i*sector, sector)
		}
	}
}
