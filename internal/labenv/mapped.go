package labenv

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
)

// Mapped is a part of the NVMe disk behind the kernel's device mapper, which makes
// it fail when a test wants that.
type Mapped struct {
	Path  string
	name  string
	start uint64 // on the disk, in sectors
	size  uint64 // in sectors
}

// sector is the device mapper's unit.
const sector = 512

const (
	// roomForEach is how far apart they are on the disk, and places how many find room.
	roomForEach = 256 << 20
	places      = 30
)

// mapped counts the devices of a test program, each of which has a part of the disk to
// itself.
var mapped atomic.Uint64

// loadMapper loads the modules.
var loadMapper = sync.OnceValue(func() error {
	if out, err := exec.Command("modprobe", "dm_flakey").CombinedOutput(); err != nil {
		return fmt.Errorf("load the device mapper: %w: %s", err, out)
	}
	return nil
})

// Map makes a device of so many bytes, up to 256 MiB, which works. It is removed at the
// end of the test.
func Map(t testing.TB, size uint64) *Mapped {
	t.Helper()
	Kernel(t)
	if err := loadMapper(); err != nil {
		t.Fatal(err)
	}
	n := mapped.Add(1) % places
	m := &Mapped{name: fmt.Sprintf("lab%d", n), start: (n + 1) * roomForEach / sector, size: size / sector}
	minor, err := createMapped(m.name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		t.Helper()
		if err := removeMapped(m.name); err != nil {
			t.Error(err)
		}
	})
	m.Path = fmt.Sprintf("/dev/dm-%d", minor)
	m.Mend(t)
	m.clear(t)
	return m
}

// clear makes the device one on which nothing is, whatever was in that place before.
func (m *Mapped) clear(t testing.TB) {
	t.Helper()
	f, err := os.OpenFile(m.Path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zeros := make([]byte, 1<<20)
	for _, at := range []int64{0, int64(m.size)*sector - int64(len(zeros))} {
		if _, err := f.WriteAt(zeros, at); err != nil {
			t.Fatalf("clear %s: %v", m.Path, err)
		}
	}
	if err := f.Sync(); err != nil {
		t.Fatalf("clear %s: %v", m.Path, err)
	}
}

// part is a part of a table, which goes to the same place of the device's part of the
// disk.
func (m *Mapped) part(kind string, from, n uint64, rest string) tablePart {
	return tablePart{from, n, kind, fmt.Sprintf("%s %d %s", Disk, m.start+from, rest)}
}

// load gives the device another table. What was begun under the one before comes to its
// end first.
func (m *Mapped) load(t testing.TB, parts ...tablePart) {
	t.Helper()
	if err := loadTable(m.name, parts); err != nil {
		t.Fatal(err)
	}
	if err := suspendMapped(m.name, false); err != nil {
		t.Fatal(err)
	}
}

// Mend makes the device work again.
func (m *Mapped) Mend(t testing.TB) { t.Helper(); m.load(t, m.part("linear", 0, m.size, "")) }

// failWrites has dm-flakey let no write through from the start, for an hour
// (Documentation/admin-guide/device-mapper/dm-flakey.rst).
const failWrites = "0 3600 1 error_writes"

// FailWrites makes each write and each flush fail. Reads go on.
func (m *Mapped) FailWrites(t testing.TB) {
	t.Helper()
	m.load(t, m.part("flakey", 0, m.size, failWrites))
}

// FailFlushes makes each flush fail and lets writes through: a flush goes to all parts
// of a device, and one near the end fails, which holds nothing.
func (m *Mapped) FailFlushes(t testing.TB) {
	t.Helper()
	const away, bad = 64, 8 // sectors from the end, and how many
	from := m.size - away
	m.load(t, m.part("linear", 0, from, ""), m.part("flakey", from, bad, failWrites), m.part("linear", from+bad, away-bad, ""))
}

// Fail makes everything fail.
func (m *Mapped) Fail(t testing.TB) { t.Helper(); m.load(t, tablePart{0, m.size, "error", ""}) }

// Hang makes the device answer nothing until it is mended, or fails.
func (m *Mapped) Hang(t testing.TB) {
	t.Helper()
	if err := suspendMapped(m.name, true); err != nil {
		t.Fatal(err)
	}
}
