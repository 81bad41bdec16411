package pipeline

import (
	"context"
	"errors"
)

// Cleanup closes what was opened, in reverse order.
type Cleanup []func() error

// Add adds a step.
func (c *Cleanup) Add(undo func() error) { *c = append(*c, undo) }

// Run runs every step once, the last one first, and joins the errors.
func (c *Cleanup) Run() error {
	var errs []error
	for i := len(*c) - 1; i >= 0; i-- {
		errs = append(errs, (*c)[i]())
	}
	*c = nil
	return errors.Join(errs...)
}

// Release returns the steps and forgets them.
func (c *Cleanup) Release() Cleanup {
	all := *c
	*c = nil
	return all
}

// Service is a goroutine that runs beside the worker as long as the flow runs: it accepts clients
// or connects to peers.
type Service struct {
	cancel context.CancelFunc // nil: it was not started
	done   chan struct{}      // closed when it has ended
	err    error              // why it ended; valid once done is closed
}

// Start starts the goroutine, whose context ends with Stop or Wait.
func (s *Service) Start(f func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel, s.done = cancel, make(chan struct{})
	go func() {
		defer close(s.done)
		s.err = f(ctx)
	}()
}

// Stop ends the context and reports whether the goroutine has ended. It does not block.
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

// Wait ends the context and waits for the goroutine. The worker's thread must not call it: the
// goroutine may need it.
func (s *Service) Wait() error {
	if s.cancel != nil {
		s.cancel()
		<-s.done
	}
	return s.err
}

// Err returns why the goroutine has ended, or nil while it runs.
func (s *Service) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}
