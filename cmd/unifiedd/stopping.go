package main

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/status"
)

// stopLook is how often it is looked at what keeps flows from stopping.
const stopLook = 500 * time.Millisecond

// stopCommand stops the flow of a command, and says what it waits for meanwhile.
func stopCommand(f *flows.Flow, w io.Writer) error {
	defer sayWaiting([]*flows.Flow{f}, func(_, why string) {
		fmt.Fprintf(w, "waiting to write what was captured: %s; another Ctrl-C ends at once, and what is not written is lost\n", why)
	})()
	return f.Stop()
}

// closeDaemon ends a daemon, and says what its flows wait for meanwhile.
func closeDaemon(d *flows.Daemon, log *slog.Logger) error {
	defer sayWaiting(d.Flows(), func(name, why string) {
		log.Warn("stopping: a flow waits; another signal ends at once, and what is not written is lost", "flow", name, "why", why)
	})()
	return d.Close()
}

// sayWaiting says of each flow that is stopping, once, what it waits for, until the returned function is called.
func sayWaiting(all []*flows.Flow, say func(name, why string)) (stop func()) {
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(stopLook)
		defer tick.Stop()
		told := make(map[string]bool)
		for begun := time.Now(); ; {
			select {
			case <-end:
				return
			case <-tick.C:
			}
			for _, f := range all {
				s := f.Status()
				if s.State == status.Waiting && !told[s.Name] && time.Since(begun) > time.Second {
					told[s.Name] = true
					say(s.Name, s.Error)
				}
			}
		}
	}()
	return func() { close(end); <-done }
}
