package main

import (
	"os/signal"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestUntilSignal: each signal that asks a program to end ends the context.
func TestUntilSignal(t *testing.T) {
	for _, s := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP} {
		if signal.Ignored(s) {
			continue // the parent of the tests ignores it
		}
		ctx, stop := untilSignal(t.Context())
		testenv.Must(t, unix.Kill(unix.Getpid(), s))
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Second):
			t.Errorf("%v does not end it", s)
		}
		stop()
	}
}
