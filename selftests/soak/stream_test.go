package soak

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// stream sends packets over a wire at a rate. Their numbers begin at 1.
type stream struct {
	wire   *wire
	rate   float64
	before uint64        // packets of earlier streams
	sent   atomic.Uint64 // including before
	once   sync.Once
	stop   chan struct{}
	done   chan struct{}
}

func newStream(t *testing.T, w *wire, rate float64) *stream {
	t.Helper()
	return (&stream{wire: w, rate: rate}).again(t)
}

// again starts a stream that continues the numbers of a halted one.
func (old *stream) again(t *testing.T) *stream {
	t.Helper()
	w, rate := old.wire, old.rate
	s, raw := &stream{wire: w, rate: rate, before: old.sent.Load(), stop: make(chan struct{}), done: make(chan struct{})}, testenv.NewSender(t, &w.from)
	s.sent.Store(s.before)
	t.Cleanup(func() { s.halt() })
	go func() {
		defer close(s.done)
		begin := time.Now()
		for {
			for due := s.before + uint64(time.Since(begin).Seconds()*rate); s.sent.Load() < due; {
				n := s.sent.Load() + 1
				if ok, err := raw.Send(testenv.UDP(&w.from, &w.to, 5000, n, packetSize)); !ok || err != nil {
					t.Errorf("send packet %d to %s: %v (sent: %v)", n, w.to.Ifname, err, ok)
					return
				}
				s.sent.Store(n)
			}
			select {
			case <-s.stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	return s
}

// halt ends the stream and returns how many packets were sent.
func (s *stream) halt() uint64 {
	s.once.Do(func() { close(s.stop) })
	<-s.done
	return s.sent.Load()
}
