package testenv

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestHugePagesBesideSurplus reserves pages while others that were given back are
// mapped for another moment: those must not stay reserved.
func TestHugePagesBesideSurplus(t *testing.T) {
	Root(t)
	var before, after int64
	for range 3 { // others may change the reservation in between, but not each time
		before, after = besideSurplus(t)
		if before == after {
			return
		}
	}
	t.Errorf("of %d pages %d remain", before, after)
}

func besideSurplus(t *testing.T) (before, after int64) {
	t.Helper()
	before, free := count(t, "nr_hugepages"), count(t, "free_hugepages")
	err := counted(func() error {
		_, err := addPages(HugePageSize, 4)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err2 := unix.Mmap(-1, 0, int(free+4)*HugePageSize, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB|unix.MAP_POPULATE)
	err = errors.Join(err2, counted(func() error { return setPages(HugePageSize, count(t, "nr_hugepages")-4) }))
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan error)
	go func() {
		time.Sleep(500 * time.Millisecond)
		gone <- unix.Munmap(b)
	}()
	t.Run("reserve", func(t *testing.T) { HugePages(t, 3*HugePageSize) })
	if err := <-gone; err != nil {
		t.Error(err)
	}
	return before, count(t, "nr_hugepages")
}

func count(t *testing.T, counter string) int64 {
	t.Helper()
	n, err := pageCount(HugePageSize, counter)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
