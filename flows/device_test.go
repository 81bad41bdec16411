package flows

import (
	"fmt"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
)

// TestDevices captures to block devices, and exports the capture from them.
func TestDevices(t *testing.T) {
	testenv.Long(t, "TestDeviceFull captures to a device as well")
	const size = 32 << 20
	for _, c := range []struct {
		name, layout string
		device       func(t *testing.T) string
	}{
		{"zram", "packed", func(t *testing.T) string { return testenv.Zram(t, size) }},
		{"loop", "packed", func(t *testing.T) string { return testenv.Loop(t, testenv.DiskFile(t, size), 0) }},
		{"loop", "slot", func(t *testing.T) string { return testenv.Loop(t, testenv.DiskFile(t, size), 0) }},
	} {
		t.Run(c.name+"/"+c.layout, func(t *testing.T) {
			l := newLab(t, testenv.PairOptions{MTU: 9000, NoAddresses: true})
			device := c.device(t)
			f := l.start(t, fmt.Sprintf(`
region: {size: 96MiB}
flows:
  - name: cap
    from: {interface: %s, ring: 2048}
    to: {device: %s, layout: %s, segment: {size: 8MiB}, flush: 100ms, durable: 200ms}
`, l.B.Ifname, device, c.layout), Options{}).Flows()[0]
			frames := l.traffic()
			s := l.captured(t, f, frames)
			if s.KernelBytes["disk"] != 0 {
				t.Errorf("the kernel copied %v", s.KernelBytes)
			}
			name := captures.ExportRing(t, device)
			captures.Readable(t, name)
			samePackets(t, "the device", captures.Packets(t, name), frames)
		})
	}
}
