package attached

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestAwait: a wait of an hour looks at the connection once, and ends at once when the descriptor is readable, ctx ends, the
// daemon closes a port or the connection ends.
func TestAwait(t *testing.T) {
	for _, c := range []struct {
		what string
		came bool
		end  func(w *waitRig)
	}{
		{"descriptor", true, func(w *waitRig) { w.wake.rouse() }},
		{"context", false, func(w *waitRig) { w.cancel() }},
		{"port", false, func(w *waitRig) { w.link.closed(&wire.Closed{Port: 7}) }},
		{"connection", false, func(w *waitRig) { w.link.ends(ErrGone) }},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := newWaitRig(t)
			done := make(chan struct{})
			var came bool
			var err error
			go func() {
				defer close(done)
				came, err = w.link.await(w.ctx, w.wake.fd, time.Hour, w.err)
			}()
			testenv.Wait(t, 10*time.Second, "the long wait", func() bool {
				w.link.mu.Lock()
				defer w.link.mu.Unlock()
				return len(w.link.waiters) > 0
			})
			time.Sleep(3 * shortWait)
			if n := w.looks.Load(); n > 1 {
				t.Errorf("the connection was looked at %d times", n)
			}
			c.end(w)
			<-done
			if came != c.came || err != nil || len(w.link.waiters) > 0 {
				t.Errorf("something came: %v, %v; %d still wait", came, err, len(w.link.waiters))
			}
			if again, err := w.link.await(w.ctx, w.wake.fd, time.Hour, w.err); again != c.came || err != nil {
				t.Errorf("after it something came: %v, %v", again, err)
			}
		})
	}
}

// waitRig is a connection without a daemon, with one port.
type waitRig struct {
	link   *link
	wake   waiter // in place of the port's socket
	ctx    context.Context
	cancel context.CancelFunc
	looks  atomic.Int64
	closed atomic.Pointer[RefusedError]
}

func newWaitRig(t *testing.T) *waitRig {
	t.Helper()
	w := &waitRig{link: &link{gone: make(chan struct{}), ports: map[uint32]*atomic.Pointer[RefusedError]{}, waiters: map[*waiter]struct{}{}}}
	w.ctx, w.cancel = context.WithCancel(t.Context())
	w.link.know(7, &w.closed)
	testenv.Must(t, w.wake.open())
	t.Cleanup(w.wake.close)
	return w
}

func (w *waitRig) err() error {
	w.looks.Add(1)
	if c := w.closed.Load(); c != nil {
		return c
	}
	if !w.link.alive() {
		return ErrGone
	}
	return nil
}
