package flows

import "sync/atomic"

// faults keeps what ends a flow: the first error, from whichever thread.
type faults struct {
	failed atomic.Pointer[error] // nothing new is taken after it
}

// note keeps the first error. Only an error is put on the heap, which the address
// of the parameter would be each time.
func (f *faults) note(err error) {
	if err != nil {
		first := err
		f.failed.CompareAndSwap(nil, &first)
	}
}

// fault is the first error, or nil.
func (f *faults) fault() error {
	if err := f.failed.Load(); err != nil {
		return *err
	}
	return nil
}
