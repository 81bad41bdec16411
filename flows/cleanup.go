package flows

import "errors"

// cleanup undoes what was opened, in reverse order.
type cleanup []func() error

func (c *cleanup) add(undo func() error) { *c = append(*c, undo) }

// run undoes everything added, once, and joins the errors.
func (c *cleanup) run() error {
	var errs []error
	for i := len(*c) - 1; i >= 0; i-- {
		errs = append(errs, (*c)[i]())
	}
	*c = nil
	return errors.Join(errs...)
}

// release forgets everything added and returns it.
func (c *cleanup) release() cleanup {
	all := *c
	*c = nil
	return all
}
