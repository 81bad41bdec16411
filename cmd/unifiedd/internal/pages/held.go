package pages

import (
	"errors"
	"fmt"

	"github.com/unifiedd/unifiedd/internal/record"
	"github.com/unifiedd/unifiedd/umem"
)

// Held is what was added to the machine's huge pages.
type Held struct {
	record *record.File // nil: nothing was added
	raises []umem.Raise
	back   []func() error
}

// Reserve makes sure that the pages are free, after it gave back what killed processes
// have left. It adds nothing when it returns an error.
func Reserve(needs []Need) (*Held, error) {
	if err := Sweep(); err != nil {
		return nil, err
	}
	h := &Held{}
	for _, n := range needs {
		back, err := umem.ReserveNoted(n.Size, n.Node, n.Bytes, h.note)
		if err != nil {
			return nil, errors.Join(err, h.GiveBack())
		}
		h.back = append(h.back, back)
	}
	return h, nil
}

// note writes down a raise that is about to be made, or has been.
func (h *Held) note(r umem.Raise) (err error) {
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

// GiveBack takes away what was added. Giving back again does nothing.
func (h *Held) GiveBack() error {
	var errs []error
	for _, back := range h.back {
		errs = append(errs, back())
	}
	if err := errors.Join(errs...); err != nil || h.record == nil {
		return err
	}
	r := h.record
	h.record, h.raises = nil, nil
	return r.Remove()
}
