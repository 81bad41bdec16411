package flows

import (
	"context"
	"sync"
)

// outset is the first moment of a run: until its second check, or its end. Many a flow opens well and fails at its first
// write.
type outset struct {
	checks int // of the goroutine that watches the run
	once   sync.Once
	past   chan struct{} // closed when it is over
	err    error         // then why the run has failed, or nil
}

func newOutset() *outset { return &outset{past: make(chan struct{})} }

// checked notes that a check of the run has found no error.
func (o *outset) checked() {
	if o.checks++; o.checks == 2 {
		o.over(nil)
	}
}

// over ends the first moment.
func (o *outset) over(err error) { o.once.Do(func() { o.err = err; close(o.past) }) }

// Outset waits until the flow, which was started, has run for about a second or has ended, and returns why it has failed.
func (f *Flow) Outset(ctx context.Context) error {
	f.mu.Lock()
	o := f.outset
	f.mu.Unlock()
	select {
	case <-o.past:
		return o.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
