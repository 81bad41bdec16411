package pipeline

import (
	"context"
	"errors"
)

// cleanup undoes what was opened, in reverse order.
type Cleanup []func() error

func (c *Cleanup) Add(undo func() error) { *c = append(*c, undo) }

// run undoes everything added, once, and joins the errors.
func (c *Cleanup) Run() error {
	var errs []error
	for i := len(*c) - 1; i >= 0; i-- {
		errs = append(errs, (*c)[i]())
	}
	*c = nil
	return errors.Join(errs...)
}

// release forgets everything added and returns it.
func (c *Cleanup) Release() Cleanup {
	all := *c
	*c = nil
	return all
}

// service is what a flow has running beside its worker as long as it runs: who accepts
// clients, or connects to peers.
type Service struct {
	cancel context.CancelFunc // nil: it did not begin
	done   chan struct{}      // closed when it has ended
	err    error              // of that; once it has
}

func (s *Service) Start(f func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel, s.done = cancel, make(chan struct{})
	go func() {
		defer close(s.done)
		s.err = f(ctx)
	}()
}

// leave has it end, and reports whether it has.
func (s *Service) Stop() bool {
	if s.cancel == nil {
		return true
	}
	s.cancel()
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// wait is leave that waits, on another thread than the worker's, which it may need.
func (s *Service) Wait() error {
	if s.cancel != nil {
		s.cancel()
		<-s.done
	}
	return s.err
}

// check returns why it has ended by itself.
func (s *Service) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}
