package umem

import (
	"errors"
	"fmt"
	"runtime"
)

// Count has the number of frames of each kind of holder.
type Count [owners]int64

// Of returns the count of one kind of holder.
func (c Count) Of(o Owner) int64 { return c[o] }

// Sum returns the frames of all holders. It equals Region.Frames.
func (c Count) Sum() int64 {
	var n int64
	for _, v := range c {
		n += v
	}
	return n
}

// Snapshot counts the frames by kind of holder while traffic flows. The counts are those of each
// book's last Publish. They always add up to the number of frames.
func (r *Region) Snapshot() Count {
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	var c Count
	c[OwnerPool] = r.pool.held(&r.layout)
	for _, b := range r.books {
		one := b.read()
		for o := range one {
			c[o] += one[o]
		}
	}
	return c
}

// read copies the published counts of a book. It repeats that if a Publish came in between.
func (b *Book) read() Count {
	for {
		before := b.seq.Load()
		var c Count
		for _, h := range *b.holders.Load() {
			c[h.owner] += h.published.Load()
		}
		if before&1 == 0 && b.seq.Load() == before {
			return c
		}
		runtime.Gosched()
	}
}

// Audit compares every frame's record with its holder's count and the pool's
// contents, and reports each disagreement. Books must be at rest.
func (r *Region) Audit() (Count, error) {
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	recorded := make([]int64, len(r.holders))
	var errs []error
	r.eachRecord(func(addr uint64, id uint16) {
		if int(id) < len(recorded) {
			recorded[id] += r.units(addr)
		}
		if id != poolID && (int(id) >= len(recorded) || r.holders[id] == nil) {
			errs = append(errs, fmt.Errorf("audit: frame at %#x belongs to %s", addr, r.holderName(id)))
		}
	})
	c, err := r.auditHolders(recorded)
	return c, errors.Join(append(errs, r.auditPool(recorded[poolID]), err)...)
}

// auditHolders compares each holder's count with the records.
func (r *Region) auditHolders(recorded []int64) (c Count, err error) {
	c[OwnerPool] = recorded[poolID]
	var errs []error
	counted := make([]int64, len(r.holders)) // by ID: holders that share frames count together
	for _, b := range r.books {
		for _, h := range *b.holders.Load() {
			counted[h.id] += h.held
		}
	}
	for id, h := range r.holders {
		if h == nil {
			continue
		}
		c[h.owner] += recorded[id]
		if counted[id] != recorded[id] {
			errs = append(errs, fmt.Errorf("audit: %s counts %d frames, the records say %d", h.name, counted[id], recorded[id]))
		}
	}
	if c.Sum() != r.Frames() {
		errs = append(errs, fmt.Errorf("audit: holders have %d frames, the region %d", c.Sum(), r.Frames()))
	}
	return c, errors.Join(errs...)
}

// auditPool checks that the pool's stacks contain each recorded frame once.
func (r *Region) auditPool(recorded int64) error {
	seen := make([]bool, len(r.records))
	for _, stack := range append([][]uint64{r.pool.frames, r.pool.extents}, r.pool.parts...) {
		for _, addr := range stack {
			i := r.record(addr)
			if seen[i] || r.records[i] != poolID {
				return fmt.Errorf("audit: frame at %#x is in the pool twice, or in the pool and with a holder", addr)
			}
			seen[i] = true
		}
	}
	if held := r.pool.held(&r.layout); held != recorded {
		return fmt.Errorf("audit: the pool has %d frames, the records say %d", held, recorded)
	}
	return nil
}
