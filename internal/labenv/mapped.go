package labenv

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// Mapped is a part of the NVMe disk behind the kernel's device mapper. A test can make it fail.
type Mapped struct {
	Path  string
	name  string
	start uint64 // on the disk, in sectors
	size  uint64 // in sectors
}

// sector is the device mapper's unit.
const sector = 512

const (
	// Devices are roomForEach bytes apart on the disk. places is the number of devices that fit.
	roomForEach = 256 << 20
	places      = 30
)

// mapped counts the devices of a test program. Each device has its own part of the disk.
var mapped atomic.Uint64

// loadMapper loads the modules.
var loadMapper = sync.OnceValue(func() error {
	if out, err := exec.Command("modprobe", "dm_flakey").CombinedOutput(); err != nil {
		return fmt.Errorf("load the device mapper: %w: %s", err, out)
	}
	return nil
})

// Map makes a working device of size bytes, at most 256 MiB. The end of the test removes it.
func Map(t testing.TB, size uint64) *Mapped {
	t.Helper()
	Kernel(t)
	testenv.Must(t, loadMapper())
	n := mapped.Add(1) % places
	m := &Mapped{name: fmt.Sprintf("lab%d", n), start: (n + 1) * roomForEach / sector, size: size / sector}
	minor, err := createMapped(m.name)
	testenv.Must(t, err)
	t.Cleanup(func() {
		t.Helper()
		testenv.Check(t, removeMapped(m.name))
	})
	m.Path = fmt.Sprintf("/dev/dm-%d", minor)
	m.Mend(t)
	m.clear(t)
	return m
}

// clear overwrites the first and the last MiB, so that the device looks empty.
func (m *Mapped) clear(t testing.TB) {
	t.Helper()
	f, err := os.OpenFile(m.Path, os.O_WRONLY, 0)
	testenv.Must(t, err)
	defer f.Close()
	zeros := make([]byte, 1<<20)
	for _, at := range []int64{0, int64(m.size)*sector - int64(len(zeros))} {
		if _, err := f.WriteAt(zeros, at); err != nil {
			t.Fatalf("clear %s: %v", m.Path, err)
		}
	}
	testenv.Mustf(t, f.Sync(), "clear %s", m.Path)
}

// part is a line of a table. It maps to the same place in the device's part of the disk.
func (m *Mapped) part(kind string, from, n uint64, rest string) tablePart {
	return tablePart{from, n, kind, fmt.Sprintf("%s %d %s", Disk, m.start+from, rest)}
}

// load replaces the table of the device. Operations under the old table complete first.
func (m *Mapped) load(t testing.TB, parts ...tablePart) {
	t.Helper()
	testenv.Must(t, loadTable(m.name, parts))
	testenv.Must(t, suspendMapped(m.name, false))
}

// Mend makes the device work again.
func (m *Mapped) Mend(t testing.TB) { t.Helper(); m.load(t, m.part("linear", 0, m.size, "")) }

// failWrites makes dm-flakey fail all writes from the start, for an hour
// (Documentation/admin-guide/device-mapper/dm-flakey.rst).
const failWrites = "0 3600 1 error_writes"

// FailWrites makes each write and each flush fail. Reads still succeed.
func (m *Mapped) FailWrites(t testing.TB) {
	t.Helper()
	m.load(t, m.part("flakey", 0, m.size, failWrites))
}

// FailFlushes makes each flush fail and lets writes through. A flush goes to all parts of a device.
// One small part near the end, which holds no data, fails.
func (m *Mapped) FailFlushes(t testing.TB) {
	t.Helper()
	const away, bad = 64, 8 // sectors: distance from the end, and length
	from := m.size - away
	m.load(t, m.part("linear", 0, from, ""), m.part("flakey", from, bad, failWrites), m.part("linear", from+bad, away-bad, ""))
}

// Fail makes every operation fail.
func (m *Mapped) Fail(t testing.TB) { t.Helper(); m.load(t, tablePart{0, m.size, "error", ""}) }

// Hang stops the device from completing anything until Mend, or until a Fail method.
func (m *Mapped) Hang(t testing.TB) {
	t.Helper()
	testenv.Must(t, suspendMapped(m.name, true))
}
