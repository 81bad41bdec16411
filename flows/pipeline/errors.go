package pipeline

import "sync/atomic"

// FirstError keeps the error that ends a flow: the first one. Any goroutine may use it.
type FirstError struct {
	first atomic.Pointer[error]
	news  chan struct{} // holds one value after Tell; nil: nobody waits
}

// NewFirstError returns a FirstError whose News can be waited for.
func NewFirstError() *FirstError { return &FirstError{news: make(chan struct{}, 1)} }

// Note keeps err if it is the first error, and tells it. It ignores nil.
func (f *FirstError) Note(err error) {
	if err != nil {
		first := err // the address of the parameter would put each err on the heap
		if f.first.CompareAndSwap(nil, &first) {
			f.Tell()
		}
	}
}

// Tell wakes who waits for News: there is an error, or the flow is done.
func (f *FirstError) Tell() {
	select {
	case f.news <- struct{}{}:
	default:
	}
}

// News has a value after Tell.
func (f *FirstError) News() <-chan struct{} { return f.news }

// Get returns the first error, or nil.
func (f *FirstError) Get() error {
	if err := f.first.Load(); err != nil {
		return *err
	}
	return nil
}
