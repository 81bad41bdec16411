package harness

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/umem"
)

// Cleanup closes the things that a program has opened, in reverse order. The zero value is ready to
// use.
type Cleanup struct{ undo []func() error }

// Then adds a function for Close to call.
func (c *Cleanup) Then(f func() error) { c.undo = append(c.undo, f) }

// Close calls the functions, the last one first, and returns all their errors.
func (c *Cleanup) Close() error {
	var errs []error
	for len(c.undo) > 0 {
		last := len(c.undo) - 1
		errs = append(errs, c.undo[last]())
		c.undo = c.undo[:last]
	}
	return errors.Join(errs...)
}

// MemoryRemedy is the remedy for a program with the options -reserve and -pages.
const MemoryRemedy = "-reserve lets this program reserve huge pages, -pages ordinary does without"

// OpenRegion opens a region that c closes. With reserve it adds missing huge pages, and removes
// them at the end; a region on ordinary pages needs none. remedy completes the error for too little
// memory.
func (c *Cleanup) OpenRegion(config umem.Config, reserve bool, remedy string) (r *umem.Region, err error) {
	if reserve && config.Pages != umem.Ordinary {
		if config.Memory, err = umem.Allocate(config); err != nil {
			return nil, err
		}
		c.Then(config.Memory.GiveBack)
	}
	if r, err = umem.Open(config); err != nil {
		if errors.Is(err, unix.ENOMEM) {
			err = fmt.Errorf("%w (%s)", err, remedy)
		}
		return nil, err
	}
	c.Then(r.Close)
	return r, nil
}

// OpenHolder makes a book of the region and a worker's holder in it, both with that name.
func (c *Cleanup) OpenHolder(r *umem.Region, name string) (*umem.Book, *umem.Holder, error) {
	book := r.NewBook(name)
	c.Then(book.Close)
	holder, err := book.NewHolder(umem.OwnerWorker, name)
	if err != nil {
		return nil, nil, err
	}
	c.Then(func() error { holder.Close(); return nil })
	return book, holder, nil
}
