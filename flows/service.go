package flows

import "context"

// service is what a flow has running beside its worker as long as it runs: who accepts
// clients, or connects to peers.
type service struct {
	cancel context.CancelFunc // nil: it did not begin
	over   chan struct{}      // closed when it has ended
	err    error              // of that; once it has
}

func (s *service) begin(f func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel, s.over = cancel, make(chan struct{})
	go func() {
		defer close(s.over)
		s.err = f(ctx)
	}()
}

// leave has it end, and reports whether it has.
func (s *service) leave() bool {
	if s.cancel == nil {
		return true
	}
	s.cancel()
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

// wait is leave that waits, on another thread than the worker's, which it may need.
func (s *service) wait() error {
	if s.cancel != nil {
		s.cancel()
		<-s.over
	}
	return s.err
}

// check returns why it has ended by itself.
func (s *service) check() error {
	select {
	case <-s.over:
		return s.err
	default:
		return nil
	}
}
