package flows

import (
	"fmt"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
)

// TestPacketsOfManyFrames captures packets as long as an interface passes them. They take more frames than a
// packet of the network stack has fragments, since the kernel copies them into frames that may be smaller
// than its pages.
func TestPacketsOfManyFrames(t *testing.T) {
	const count = 300
	for _, c := range []struct {
		name, region, layout string
	}{
		{"small frames", "frame: 2048, extent: 256KiB, extents: 16", "packed"},
		{"least extent", "extent: 256KiB, extents: 2", "packed"},
		{"slot", "extent: 256KiB, extents: 2", "slot"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, testenv.PairOptions{MTU: 65535, NoAddresses: true})
			f := l.start(t, fmt.Sprintf(`
region: {size: 96MiB, %s}
flows:
  - name: cap
    from: {interface: %s, ring: 4096}
    to: {file: %s/cap, layout: %s, segment: {size: 64MiB}, flush: 50ms, durable: 100ms}
`, c.region, l.B.Ifname, l.dir, c.layout), Options{}).Flows()[0]
			testenv.SendRaw(t, &l.A, testenv.Stream(&l.A, &l.B, 5000, 0, count, 65000), testenv.SendOptions{Rate: 500})
			s := l.atRest(t, f, l.offered(t))
			if n := lost(s); n > 0 {
				t.Errorf("%d packets were lost: %v", n, s.Dropped)
			}
			inSequence(t, captures.Packets(t, l.files(t)...), 0, count)
		})
	}
}
