package testenv

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/hugetlb"
)

// TestHugePagesBesideSurplus: pages that another test gave back do not stay reserved, even if
// HugePages reserves others while they are still mapped.
func TestHugePagesBesideSurplus(t *testing.T) {
	Root(t)
	var before, after uint64
	for range 10 { // other processes may change the reservation in between, but not each time
		before, after = besideSurplus(t)
		if before == after {
			return
		}
	}
	t.Errorf("of %d pages %d remain", before, after)
}

func besideSurplus(t *testing.T) (before, after uint64) {
	t.Helper()
	free, before := count(t)
	err := counted(func() error {
		r := hugetlb.Raise{Size: hugetlb.MiB2, Node: -1}
		return addPages(&r, 4)
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err2 := unix.Mmap(-1, 0, int(free+4)*hugePageSize, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB|unix.MAP_POPULATE)
	err = errors.Join(err2, counted(func() error { _, now := count(t); return hugetlb.Set(hugetlb.MiB2, -1, now-4) }))
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan error)
	go func() {
		time.Sleep(500 * time.Millisecond)
		gone <- unix.Munmap(b)
	}()
	t.Run("reserve", func(t *testing.T) { HugePages(t, 3*hugePageSize) })
	if err := <-gone; err != nil {
		t.Error(err)
	}
	_, after = count(t)
	return before, after
}

func count(t *testing.T) (free, total uint64) {
	t.Helper()
	free, total, err := hugetlb.Free(hugetlb.MiB2, -1)
	if err != nil {
		t.Fatal(err)
	}
	return free, total
}

// stirring is set in the environment of a process that calls StirHugePages.
const stirring = "TESTENV_STIR"

// TestHugePagesBesideAnother: while another program takes and gives back huge pages, a test can map
// what HugePages reserved at any time. HugePages replaces taken pages soon.
func TestHugePagesBesideAnother(t *testing.T) {
	Root(t)
	defer Stir(t, os.Args[0], stirring+"=1")()
	for range 10 {
		t.Run("map", func(t *testing.T) {
			HugePages(t, 8*hugePageSize)
			time.Sleep(30 * time.Millisecond)
			Wait(t, 20*time.Second, "8 pages to map", func() bool {
				b, err := unix.Mmap(-1, 0, 8*hugePageSize, unix.PROT_READ|unix.PROT_WRITE,
					unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB|unix.MAP_POPULATE)
				if err != nil {
					return false
				}
				time.Sleep(30 * time.Millisecond)
				return unix.Munmap(b) == nil
			})
		})
	}
}

// TestHugePagesTaken: if another program takes all free pages and keeps them, HugePages replaces
// the test's pages. The end of the test gives them back although the others are in use.
func TestHugePagesTaken(t *testing.T) {
	Root(t)
	var taken []byte
	t.Run("test", func(t *testing.T) {
		HugePages(t, 4*hugePageSize)
		free, _ := count(t)
		for taken == nil && free > 0 { // another process may be faster
			taken, _ = unix.Mmap(-1, 0, int(free)*hugePageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB)
			free--
		}
		Wait(t, 20*time.Second, "4 pages to be free again", func() bool { free, _ := count(t); return free >= 4 })
		if err := unix.Munmap(taken); err != nil {
			t.Error(err)
		}
	})
}

// TestKeeperAllocatesNothing: the keeper does not allocate, because tests of the hot path count the
// allocations of the whole process.
func TestKeeperAllocatesNothing(t *testing.T) {
	Root(t)
	for _, want := range []uint64{0, 1 << 30} { // pages: none is short, or many are
		k := keeper{size: hugetlb.MiB2, want: want}
		if err := k.open(); err != nil {
			t.Fatal(err)
		}
		defer k.close()
		if n := testing.AllocsPerRun(100, func() { k.short(0) }); n != 0 {
			t.Errorf("%v allocations each time it looks, wanting %d pages", n, want)
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
