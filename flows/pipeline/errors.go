package pipeline

import "sync/atomic"

// FirstError keeps the error that ends a flow: the first one. Any goroutine may use it.
type FirstError struct {
	first atomic.Pointer[error]
}

// Note keeps err if it is the first error. It ignores nil.
func (f *FirstError) Note(err error) {
	if err != nil {
		first := err // the address of the parameter would put each err on the heap
		f.first.CompareAndSwap(nil, &first)
	}
}

// Get returns the first error, or nil.
func (f *FirstError) Get() error {
	if err := f.first.Load(); err != nil {
		return *err
	}
	return nil
}
