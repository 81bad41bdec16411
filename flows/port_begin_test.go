package flows

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	library "github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestPortWhileFlowBegins: a program that asks for its port at any moment while the flow begins gets one with frames to
// fill, and its message is acknowledged.
func TestPortWhileFlowBegins(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	socket := filepath.Join(l.dir, "attach.sock")
	d := l.start(t, fmt.Sprintf(`
region: {size: 16MiB, pages: ordinary}
attach: {socket: %s, programs: [{name: p, user: "%d", out: 8MiB}]}
flows: [{name: f, from: {attach: p, message: 64}, to: {discard: true}}]
`, socket, os.Getuid()), Options{})
	f := d.Flows()[0]
	k, err := library.Attach(library.Config{Socket: socket, Name: "p"})
	testenv.Must(t, err)
	defer k.Close()
	for n := range 10 {
		testenv.Must(t, f.Stop())
		var asks atomic.Int64
		port := make(chan *library.Sender, 1)
		go func() {
			for {
				asks.Add(1)
				s, err := k.Send("f", 0)
				if refused, is := errors.AsType[*library.RefusedError](err); is && refused.Reason == "no_such_flow" {
					continue
				}
				if err != nil {
					t.Error(err)
				}
				port <- s
				return
			}
		}()
		testenv.Wait(t, 10*time.Second, "the program to ask", func() bool { return asks.Load() > 10 })
		testenv.Must(t, f.Start())
		s := <-port
		if s == nil {
			return
		}
		frame, err := s.Claim()
		if err != nil {
			t.Fatalf("start %d: a port without a frame: %v", n, err)
		}
		if _, err := s.Commit(frame, 1); err != nil {
			t.Fatal(err)
		}
		var got [1]library.Receipt
		for end := time.Now().Add(time.Minute); ; {
			if n, err := s.Poll(got[:]); n > 0 || err != nil || time.Now().After(end) {
				if n != 1 || err != nil || got[0].Err != nil {
					t.Fatalf("%d receipts: %+v, %v", n, got[0], err)
				}
				break
			}
			testenv.Must(t, s.Wait(t.Context(), time.Second))
		}
		testenv.Must(t, s.Close())
	}
}
