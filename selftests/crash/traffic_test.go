package crash

import (
	"sync"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// traffic is a stream of numbered packets from one end of a pair to the other.
type traffic struct {
	once sync.Once
	stop chan struct{}
	done chan struct{}
	sent uint64 // valid once done is closed
}

// send sends packets of many sizes, with numbers from first on, until stopped.
func send(t *testing.T, p *testenv.Pair, first uint64, rate float64) *traffic {
	t.Helper()
	s := testenv.NewSender(t, &p.A)
	tr := &traffic{stop: make(chan struct{}), done: make(chan struct{})}
	t.Cleanup(func() { tr.halt() })
	go func() {
		defer close(tr.done)
		start := time.Now()
		for {
			due := uint64(time.Since(start).Seconds() * rate)
			for ; tr.sent < due; tr.sent++ {
				n := first + tr.sent
				if ok, err := s.Send(testenv.UDP(&p.A, &p.B, 5000, n, size(n))); !ok || err != nil {
					return // at this rate the link's queue cannot fill
				}
			}
			select {
			case <-tr.stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	return tr
}

// size is the length of packet n, within the limits of Ethernet.
func size(n uint64) int { return 60 + int(n*2654435761%1455) }

// halt ends the stream and returns how many packets were sent.
func (tr *traffic) halt() uint64 {
	tr.once.Do(func() { close(tr.stop) })
	<-tr.done
	return tr.sent
}
