package testenv

import (
	"io"
	"os"
	"testing"
	"time"
)

// RunExample runs the Example of a package in a namespace that has an interface eth0. Packets of 1000
// bytes arrive there until the example returns. Its standard output must be want.
func RunExample(t *testing.T, o PairOptions, example func(), want string) {
	t.Helper()
	pair := NewPair(t, o)
	pair.B.Rename(t, "eth0")
	r, w, err := os.Pipe()
	Must(t, err)
	defer r.Close()
	stdout := os.Stdout
	os.Stdout = w
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer w.Close()
		pair.B.Do(t, example)
	}()
	sender, one, late := NewSender(t, &pair.A), UDP(&pair.A, &pair.B, 9, 0, 1000), time.After(Within(time.Minute))
	for {
		select {
		case <-done:
			os.Stdout = stdout
			if got, err := io.ReadAll(r); err != nil || string(got) != want {
				t.Errorf("the example printed %q, %v, want %q", got, err, want)
			}
			return
		case <-late:
			os.Stdout = stdout
			t.Fatal("the example does not end")
		case <-time.After(10 * time.Millisecond):
			_, _ = sender.Send(one) // the interface may be coming up
		}
	}
}
