package hugetlb

import (
	"errors"
	"fmt"

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

// Add adds free pages, and fills From, By and Made in. The caller holds the lock. note is told what is about
// to change, and again when it has; an error of note's changes nothing. The reservation
// grows by more where the kernel has surplus pages, since it makes those part of the
// reservation before it looks for others (set_max_huge_pages in mm/hugetlb.c). Where the
// kernel finds too little memory in one piece, nothing changes and the error is ENOMEM.
func (r *Raise) Add(pages uint64, note func(Raise) error) error {
	reserved, surplus, err := Reservation(r.Size, r.Node)
	if err != nil {
		return err
	}
	r.From, r.By = reserved, surplus+pages
	if err := note(*r); err != nil {
		return err
	}
	if err := Set(r.Size, r.Node, reserved+surplus+pages); err != nil {
		return err
	}
	now, _, err := Reservation(r.Size, r.Node)
	if err != nil {
		return errors.Join(err, Set(r.Size, r.Node, reserved))
	}
	raised := now - min(reserved, now)
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

// GiveBack takes the pages off the reservation, those of a raise that was not made to its
// end as far as they are there. It takes the lock. It is to be called once; the process
// need not be the one that raised.
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

// lower takes n pages off the reservation. Those in use the kernel keeps as surplus until
// they are free.
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
