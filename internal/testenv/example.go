package testenv

import (
	"testing"
	"time"
)

// RunExample runs the Example of a package on the interface eth0, which it makes in a namespace. The
// other end of the pair sends packets until the example returns. An example ends the test program if
// a step fails.
func RunExample(t testing.TB, o PairOptions, example func()) {
	t.Helper()
	pair := NewPair(t, o)
	pair.B.Rename(t, "eth0")
	done := make(chan struct{})
	go func() {
		defer close(done)
		pair.B.Do(t, example)
	}()
	sender := NewSender(t, &pair.A)
	one := UDP(&pair.A, &pair.B, 9, 0, 1000)
	for {
		select {
		case <-done:
			return
		case <-time.After(10 * time.Millisecond):
			_, _ = sender.Send(one) // the interface may be coming up
		}
	}
}
