package flows

import (
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestRingWhileAway: while the worker is kept from its flows, a ring of default length holds the packets that
// arrive, more than a ring of 4096 could.
func TestRingWhileAway(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	d := l.start(t, strings.Replace(l.defaults("packed"), ", ring: 2048", "", 1), Options{})
	f := d.Flows()[0]
	const n, ring = 6000, 8192 // the default length with a region of 96 MiB
	if got := f.Status().Ring; got != ring {
		t.Fatalf("the ring has %d entries, want %d", got, ring)
	}
	away, back, returned := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() { returned <- f.worker.Do(func() error { close(away); <-back; return nil }) }()
	<-away
	sent := testenv.SendRaw(t, &l.A, testenv.Stream(&l.A, &l.B, 9, 0, n, 200), testenv.SendOptions{Rate: 50000})
	testenv.Wait(t, 30*time.Second, "the packets to be in the ring", func() bool {
		s := f.Status()
		return s.Waiting+lost(s) >= uint64(sent)
	})
	close(back)
	testenv.Must(t, <-returned)
	s := await(t, f, "the packets", func(s status.Flow) bool { return s.Durable.Packets+lost(s) >= uint64(sent) })
	if s.Durable.Packets != n || lost(s) > 0 {
		t.Errorf("of %d packets %d are there, lost: %v", sent, s.Durable.Packets, s.Dropped)
	}
}
