package powercut

import (
	"fmt"
	"math/rand/v2"
)

// Fate is what becomes of the writes that no flush has made durable.
type Fate int

// The fates there are.
const (
	Lost  Fate = iota // all of them
	Kept              // none is lost
	some              // each is kept or not
	late              // the earlier ones are lost, the later ones kept
	early             // the other way round
	torn              // some are kept, and of some of those not all sectors
	fates
)

func (f Fate) String() string {
	return [...]string{"lost", "kept", "some", "late", "early", "torn"}[f]
}

// Cut is one state that a power cut can leave.
type Cut struct {
	At      int  // entries in front of the cut
	Durable int  // entries in front of the last flush, or behind it
	Fate    Fate // of the others
	Pending int  // writes among the others
	Kept    int  // of those, in whole or in part
	Torn    int  // of those, in part
}

func (c Cut) String() string {
	return fmt.Sprintf("cut behind entry %d, %d behind the last flush: of %d pending writes %d kept, %d of them torn (%v)",
		c.At, c.At-c.Durable, c.Pending, c.Kept, c.Torn, c.Fate)
}

// flushed is how many entries are durable for certain in front of a cut.
func (l *Log) flushed(at int) int {
	for n := at; n > 0; n-- {
		if l.Entries[n-1].Flags&flush != 0 {
			return n
		}
	}
	return 0
}

// Cut makes of image, which is the disk as it was before the record, the disk as a cut
// behind at entries can leave it.
func (l *Log) Cut(image []byte, at int, f Fate, r *rand.Rand) Cut {
	return l.cut(image, at, l.flushed(at), f, r)
}

// cut is Cut with so many durable entries.
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

// keeps decides on the pending entry i.
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

// apply does to a disk what the entry asks for.
func (e Entry) apply(image []byte) { e.part(image, 0, e.Length) }

// part does it to length bytes from a place in the entry on.
func (e Entry) part(image []byte, from, length int64) {
	to := image[e.Offset+from:][:length]
	if e.Data == nil {
		clear(to)
		return
	}
	copy(to, e.Data[from:])
}

// tear applies some of the sectors: the first, the last, or any.
func (e Entry) tear(image []byte, sector int64, r *rand.Rand) {
	n := e.Length / sector
	how, border := r.IntN(3), 1+r.Int64N(n-1)
	for i := range n {
		if how == 0 && i < border || how == 1 && i >= border || how == 2 && r.IntN(2) == 0 {
			e.part(image, i*sector, sector)
		}
	}
}
