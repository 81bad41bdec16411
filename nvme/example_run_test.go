package nvme

import (
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestExample sets and runs it. The example is in package nvme_test, where a user would write it.
var example func()

// SetExample sets the function that TestExample runs.
func SetExample(f func()) { example = f }

// TestExample runs the example with packets on an interface of the name that it uses.
func TestExample(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	pair.B.Rename(t, "eth0")
	done := make(chan struct{})
	go func() {
		defer close(done)
		pair.B.Do(t, example)
	}()
	sender := testenv.NewSender(t, &pair.A)
	one := testenv.UDP(&pair.A, &pair.B, 9, 0, 1000)
	for {
		select {
		case <-done:
			return
		case <-time.After(10 * time.Millisecond):
			_, _ = sender.Send(one) // the interface may be coming up
		}
	}
}
