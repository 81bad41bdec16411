package measure

import "time"

// Ticks keeps points in time for as little as one reading of the processor's own counter each,
// where it has one that programs may read, and else of the system's clock.
type Ticks struct {
	at     []uint64
	next   int
	counts uint64 // of the counter when it was made
	began  time.Time
}

// NewTicks makes room for n points.
func NewTicks(n int) *Ticks {
	return &Ticks{at: make([]uint64, n), counts: counter(), began: time.Now()}
}

// Now keeps this moment behind those kept before. Nil keeps none.
func (t *Ticks) Now() {
	if t == nil {
		return
	}
	t.at[t.next] = counter()
	t.next++
}

// At keeps this moment in place i.
func (t *Ticks) At(i int) { t.at[i] = counter() }

// Nanoseconds are the points since NewTicks, 0 for places that were not filled. The counter is
// compared with the system's clock over the whole time, which must not be too short: a call
// after a millisecond is within a part in a thousand.
func (t *Ticks) Nanoseconds() []uint64 {
	each := float64(time.Since(t.began).Nanoseconds()) / float64(counter()-t.counts)
	all := make([]uint64, len(t.at))
	for i, c := range t.at {
		if c != 0 {
			all[i] = uint64(float64(c-t.counts) * each)
		}
	}
	return all
}
