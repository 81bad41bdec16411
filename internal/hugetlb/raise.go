package hugetlb

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Raise is one change of a reservation.
type Raise struct {
	Size Size
	Node int    // negative: of the machine
	From uint64 // pages that were reserved
	By   uint64 // pages added, or at most to be added
	Made bool   // it is done; before, the kernel may have added a part
}

// Add adds free pages, and sets From, By and Made. The caller holds the lock. Add calls note before the
// change, and again after it. If note fails, nothing changes. If the kernel has surplus pages, the
// reservation grows by more, since the kernel makes those part of the reservation before it allocates others
// (set_max_huge_pages in mm/hugetlb.c). If the kernel finds too little contiguous memory, nothing changes and
// the error is ENOMEM.
func (r *Raise) Add(pages uint64, note func(Raise) error) error {
	reserved, surplus, err := Reservation(r.Size, r.Node)
	if err != nil {
		return err
	}
	r.From, r.By = reserved, surplus+pages
	if err := note(*r); err != nil {
		return err
	}
	raised, err := r.set(reserved, surplus+pages)
	if err != nil {
		return err
	}
	if raised < surplus+pages {
		return errors.Join(fmt.Errorf("the kernel found memory for only %d: %w (free memory or reserve them at boot)",
			raised-min(surplus, raised), unix.ENOMEM), r.lower(raised))
	}
	r.By, r.Made = raised, true
	if err := note(*r); err != nil {
		return errors.Join(err, r.lower(raised))
	}
	return nil
}

// set adds pages to the reserved ones, and returns how many the kernel has added. It compacts memory if those are too few.
func (r *Raise) set(reserved, pages uint64) (raised uint64, err error) {
	for range 2 {
		if err := Set(r.Size, r.Node, reserved+pages); err != nil {
			return raised, err
		}
		now, _, err := Reservation(r.Size, r.Node)
		if err != nil {
			return raised, errors.Join(err, Set(r.Size, r.Node, reserved))
		}
		if raised = now - min(reserved, now); raised >= pages {
			break
		}
		_ = os.WriteFile("/proc/sys/vm/compact_memory", []byte("1"), 0) // without it the pages are too few
	}
	return raised, nil
}

// GiveBack removes the pages from the reservation. For a raise that was interrupted it removes
// those that exist. It takes the lock. Call it once; another process than the one that raised may
// call it.
func (r Raise) GiveBack() error {
	unlock, err := Lock()
	if err != nil {
		return fmt.Errorf("give back %d %v: %w", r.By, r.Size, err)
	}
	defer unlock()
	return r.giveBack()
}

// giveBack is GiveBack for a caller that holds the lock.
func (r Raise) giveBack() error {
	n := r.By
	if !r.Made {
		reserved, _, err := Reservation(r.Size, r.Node)
		if err != nil {
			return fmt.Errorf("give back %d %v: %w", n, r.Size, err)
		}
		n = min(n, reserved-min(r.From, reserved))
	}
	return r.lower(n)
}

// lower removes n pages from the reservation. The kernel keeps pages in use as surplus until they
// are free.
func (r Raise) lower(n uint64) error {
	if n == 0 {
		return nil
	}
	reserved, _, err := Reservation(r.Size, r.Node)
	if err == nil {
		err = Set(r.Size, r.Node, reserved-min(n, reserved))
	}
	left := reserved
	if err == nil {
		left, _, err = Reservation(r.Size, r.Node)
	}
	if err == nil && left+min(n, reserved) > reserved {
		err = fmt.Errorf("the kernel keeps %d of them reserved", left+n-reserved)
	}
	if err != nil {
		return fmt.Errorf("give back %d %v: %w", n, r.Size, err)
	}
	return nil
}
