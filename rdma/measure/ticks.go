package measure

import "time"

// Ticks records points in time. Each costs one reading of the processor's counter, if programs may
// read it, and otherwise of the system's clock.
type Ticks struct {
	at     []uint64
	next   int
	counts uint64 // the counter when Ticks was made
	began  time.Time
}

// NewTicks makes room for n points.
func NewTicks(n int) *Ticks {
	return &Ticks{at: make([]uint64, n), counts: counter(), began: time.Now()}
}

// Now appends the present time. A nil Ticks records nothing.
func (t *Ticks) Now() {
	if t == nil {
		return
	}
	t.at[t.next] = counter()
	t.next++
}

// At stores the present time in place i.
func (t *Ticks) At(i int) { t.at[i] = counter() }

// Nanoseconds returns the points since NewTicks, and 0 for places that were not filled. It compares
// the counter with the system's clock over the whole time, which must not be too short: a call
// after a millisecond is accurate to one part in a thousand.
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
