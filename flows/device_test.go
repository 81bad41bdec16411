package flows

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/export"
	"github.com/unifiedd/unifiedd/internal/ring"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestDevices captures to block devices, and copies the capture from there.
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
			name := exported(t, device)
			readWithoutComplaint(t, name)
			samePackets(t, "the device", packets(t, name), frames)
		})
	}
}

// exported makes a file of the ring on a device.
func exported(t *testing.T, device string) string {
	t.Helper()
	in, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	_ = unix.Fadvise(int(in.Fd()), 0, 0, unix.FADV_DONTNEED) // commands to a node write past the cache
	size, err := in.Seek(0, io.SeekEnd)
	if err != nil {
		t.Fatal(err)
	}
	found, err := ring.Find(in, uint64(size))
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(filepath.Join(t.TempDir(), "export.pcapng"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	x := export.New(out, export.Select{})
	if err := x.AddRing(in, found.Ring); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Name()
}
