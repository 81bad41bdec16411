package flows

import (
	"fmt"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestPollWhileStuck: packets for which there is no room do not keep a worker awake that waits in poll.
func TestPollWhileStuck(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	small := testenv.Ext4(t, 24<<20)
	d := l.open(t, fmt.Sprintf(`
workers: [{name: main}]
region: {size: 32MiB, extent: 256KiB, extents: 4}
flows:
  - name: cap
    from: {interface: %s, ring: 512}
    to: {file: %s/cap, segment: {size: 64MiB}, prepare: none, flush: 20ms, durable: 50ms}
`, l.B.Ifname, small), Options{})
	f := d.Flows()[0]
	f.drainTimeout = 100 * time.Millisecond
	l.begin(t, f.Start)
	fill(t, small)
	frames := testenv.Stream(&l.A, &l.B, 5000, 0, 500, 1000)
	for i := 0; i < 40 && f.Status().Stalls == 0; i++ {
		testenv.SendRaw(t, &l.A, frames, testenv.SendOptions{})
	}
	testenv.SendRaw(t, &l.A, frames, testenv.SendOptions{})
	if s := f.Status(); s.Stalls == 0 || s.Waiting == 0 {
		t.Fatalf("nothing waits: the test shows nothing (%+v)", s)
	}
	before := d.Status().Workers[0].Rounds
	time.Sleep(500 * time.Millisecond)
	if n := d.Status().Workers[0].Rounds - before; n > 1000 {
		t.Errorf("%d rounds in half a second in which nothing could be done", n)
	}
	if err := f.Stop(); err == nil {
		t.Error("it stopped as if all were written")
	}
}
