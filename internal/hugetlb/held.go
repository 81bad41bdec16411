package hugetlb

import (
	"errors"
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/internal/record"
)

// place is the beginning of the paths of notes. Tests use another one.
var place = "/run/unifiedd-pages-"

// Held is the huge pages that a process added to the machine. It is also noted in a file, so that
// another process can take them back. The zero value has added nothing. It belongs to one
// goroutine.
type Held struct {
	record *record.File // nil: nothing was added
	raises []Raise
}

// Add adds free pages. The caller holds the lock.
func (h *Held) Add(s Size, node int, pages uint64) error {
	r := Raise{Size: s, Node: node}
	before := len(h.raises)
	if err := r.Add(pages, h.note); err != nil {
		h.raises = h.raises[:before]
		return fmt.Errorf("reserve %d %v: %w", pages, s, err)
	}
	return nil
}

// note writes down a raise before and after it is made.
func (h *Held) note(r Raise) (err error) {
	if h.record == nil {
		if h.record, err = record.New(place); err != nil {
			return fmt.Errorf("note it: %w", err)
		}
	}
	if r.Made {
		h.raises = h.raises[:len(h.raises)-1] // it was noted before
	}
	h.raises = append(h.raises, r)
	if err := h.record.Put(h.raises); err != nil {
		return fmt.Errorf("note it: %w", err)
	}
	return nil
}

// Added is how many pages were added.
func (h *Held) Added() (n uint64) {
	for _, r := range h.raises {
		n += r.By
	}
	return n
}

// lateFree is how long the kernel may take to free the pages of a process or a device that no
// longer exists.
const lateFree = 2 * time.Second

// GiveBack removes the added pages, once. First it waits up to two seconds until that many are
// free: pages in use would count as surplus until then. It takes the lock.
func (h *Held) GiveBack() error {
	for end := time.Now().Add(lateFree); !h.free() && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	return h.end(Raise.GiveBack)
}

// Cancel is GiveBack at once, for a caller that holds the lock.
func (h *Held) Cancel() error { return h.end(Raise.giveBack) }

// end takes the raises back, last to first.
func (h *Held) end(giveBack func(Raise) error) error {
	var errs []error
	for i := len(h.raises) - 1; i >= 0; i-- {
		errs = append(errs, giveBack(h.raises[i]))
	}
	if err := errors.Join(errs...); err != nil || h.record == nil {
		return err
	}
	r := h.record
	h.record, h.raises = nil, nil
	return r.Remove()
}

// free reports whether as many pages as were added are free, or their number is not known.
func (h *Held) free() bool {
	for _, r := range h.raises {
		if free, _, err := Free(r.Size, r.Node); err == nil && free < r.By {
			return false
		}
	}
	return true
}

// Sweep takes back the pages of killed processes. A process that may not read their notes leaves
// them alone. It takes the lock.
func Sweep() error {
	if err := record.Sweep(place, sweepOne); err != nil {
		return fmt.Errorf("give back huge pages (see nr_hugepages): %w", err)
	}
	return nil
}

// sweepOne takes back the pages of one note.
func sweepOne(r *record.File) (done bool, err error) {
	var all []Raise
	if _, err := r.Get(&all); err != nil {
		return false, err
	}
	for len(all) > 0 {
		last := len(all) - 1
		if err := all[last].GiveBack(); err != nil {
			return false, err
		}
		all = all[:last]
		if err := r.Put(all); err != nil { // once only, should this process be killed too
			return false, err
		}
	}
	return true, nil
}
