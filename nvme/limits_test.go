package nvme

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/umem"
)

// TestLimitsOfDevices: the limits of the test's devices have their known values.
func TestLimitsOfDevices(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{})
	zram, _ := r.open(zramTarget(t, 1<<20))
	if l := zram.Limits(); l.Logical != 4096 || l.Boundary != 1 || l.Discard != 4096 {
		t.Errorf("zram: %+v", l)
	}
	file, _ := r.open(fileTarget(t, 1<<20))
	if l := file.Limits(); l.Logical == 0 || l.Transfer == 0 || l.Segments == 0 {
		t.Errorf("the device under a file: %+v", l)
	}
}

// TestReadLimits: the attributes of a disk that uses PRPs are read correctly, also if some are missing.
func TestReadLimits(t *testing.T) {
	dir := t.TempDir()
	for name, value := range map[string]string{"logical_block_size": "512", "physical_block_size": "4096", "max_hw_sectors_kb": "512", "max_segments": "127",
		"virt_boundary_mask": "4095", "discard_max_bytes": "0", "discard_granularity": "512", "write_zeroes_max_bytes": "131072", "fua": "1",
		"write_cache": "write back", "zoned": "host-managed"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := Limits{Logical: 512, Physical: 4096, Transfer: 512 << 10, Segments: 127, Boundary: 4096, Zeroes: 131072, FUA: true, Cache: true}
	if got := readLimits(dir); got != want {
		t.Errorf("%+v", got)
	}
	if err := refuseZoned(dir); !errors.Is(err, ErrNotSupported) || !strings.Contains(err.Error(), "host-managed") {
		t.Error(err)
	}
	if got := readLimits(t.TempDir()); got != (Limits{Boundary: 1}) {
		t.Errorf("of nothing: %+v", got)
	}
}
