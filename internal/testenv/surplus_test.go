package testenv

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/hugetlb"
)

// stirring is set in the environment of a process that calls StirHugePages.
const stirring = "TESTENV_STIR"

// mapPages maps huge pages, or returns nil.
func mapPages(n int) []byte {
	b, err := unix.Mmap(-1, 0, n*hugePageSize, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB|unix.MAP_POPULATE)
	if err != nil {
		return nil
	}
	return b
}

// TestHugePagesBesideAnother: while another program takes and gives back huge pages, a test can map
// what HugePages reserved, at once and at any time.
func TestHugePagesBesideAnother(t *testing.T) {
	Root(t)
	defer Stir(t, os.Args[0], stirring+"=1")()
	HugePages(t, 8*hugePageSize)
	for range 10 {
		b := mapPages(8)
		if b == nil {
			t.Fatal("8 pages cannot be mapped")
		}
		time.Sleep(30 * time.Millisecond)
		if err := unix.Munmap(b); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHugePagesTaken: another program takes all free pages and keeps them. The test still gets its pages.
func TestHugePagesTaken(t *testing.T) {
	Root(t)
	HugePages(t, 4*hugePageSize)
	free, _, err := hugetlb.Free(hugetlb.MiB2, -1)
	if err != nil {
		t.Fatal(err)
	}
	var taken []byte
	for ; taken == nil && free > 0; free-- { // another process may be faster
		taken = mapPages(int(free))
	}
	b := mapPages(4)
	if b == nil {
		t.Fatal("4 pages cannot be mapped")
	}
	for _, mapped := range [][]byte{taken, b} {
		if err := unix.Munmap(mapped); err != nil {
			t.Error(err)
		}
	}
}

func TestMain(m *testing.M) {
	if os.Getenv(stirring) != "" {
		StirHugePages(os.Stdin, 16)
		os.Exit(0)
	}
	os.Exit(m.Run())
}
