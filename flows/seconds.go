package flows

import (
	"sync"
	"sync/atomic"
	"time"
)

// seconds wakes all flows of a daemon once a second. They have one timer together, so that their number does not count.
type seconds struct {
	mu     sync.Mutex
	second chan struct{} // closed when it is over
	stop   chan struct{}
	done   chan struct{}

	flows atomic.Int32 // that it wakes
}

func newSeconds() *seconds {
	s := &seconds{second: make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{})}
	go s.run()
	return s
}

// next returns a channel that is closed when the present second is over.
func (s *seconds) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.second
}

func (s *seconds) run() {
	defer close(s.done)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.mu.Lock()
			close(s.second)
			s.second = make(chan struct{})
			s.mu.Unlock()
		case <-s.stop:
			return
		}
	}
}

// Close ends the seconds: no channel is closed any more.
func (s *seconds) Close() error {
	close(s.stop)
	<-s.done
	return nil
}
