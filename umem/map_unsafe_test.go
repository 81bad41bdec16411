package umem

import (
	"errors"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestFailedMappingKeepsAddresses: when a part cannot be mapped, nobody else gets its addresses. The next try would map it
// over whatever the C library has put there meanwhile.
func TestFailedMappingKeepsAddresses(t *testing.T) {
	testenv.OnMachine(t, "huge pages")
	const size = 1 << 40 // no machine has so many huge pages
	a, err := reserveRange(size, 2<<20)
	testenv.Must(t, err)
	defer func() {
		testenv.Check(t, a.unmap())
	}()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_HUGETLB|unix.MFD_HUGE_2MB)
	testenv.Must(t, err)
	f := os.NewFile(uintptr(fd), "test")
	defer f.Close()
	testenv.Must(t, f.Truncate(size))
	if _, err := a.mapAt(0, size, f); !errors.Is(err, unix.ENOMEM) {
		t.Fatalf("a TiB of huge pages is mapped: %v", err)
	}
	p, err := unix.MmapPtr(-1, 0, unsafe.Add(a.start, size/2), 4096, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED_NOREPLACE)
	if !errors.Is(err, unix.EEXIST) {
		t.Errorf("others can map something at %p: %v", p, err)
	}
}
