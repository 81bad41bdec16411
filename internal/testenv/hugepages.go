package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// HugePageSize is the size in bytes of the pages HugePages reserves.
	HugePageSize = 2 << 20
	// GiantPageSize is the size in bytes of the pages GiantPages reserves.
	GiantPageSize = 1 << 30
)

// HugePages reserves 2 MiB pages for at least that many bytes, on top of
// whatever is reserved already, and takes exactly as many back at the end of
// the test. It adds even where free pages are to be seen: those may belong to a
// test of another process that has not mapped them yet.
//
// The end of the test fails when the pages are still in use after some
// seconds: then something still maps them or pins them.
func HugePages(t testing.TB, bytes uint64) {
	t.Helper()
	reserve(t, HugePageSize, bytes)
}

// GiantPages is HugePages with pages of 1 GiB. The memory of a machine that
// has been up for a while may be too scattered for them.
func GiantPages(t testing.TB, bytes uint64) {
	t.Helper()
	reserve(t, GiantPageSize, bytes)
}

func reserve(t testing.TB, size, bytes uint64) {
	t.Helper()
	Root(t)
	pages := int64((bytes + size - 1) / size)
	if pages == 0 {
		return
	}
	err := counted(func() (err error) {
		pages, err = addPages(size, pages)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	forget := note(t, "hugepages", fmt.Sprintf("%d %d", size, pages))
	t.Cleanup(func() {
		t.Helper()
		if err := returnPages(size, pages, 5*time.Second); err != nil {
			t.Error(err)
			return // they stay in the ledger, and the next process gives them back
		}
		forget()
	})
}

// addPages raises the reservation by pages, or leaves it as it was. It returns how much the reservation has
// grown: surplus pages become part of it first.
func addPages(size uint64, pages int64) (int64, error) {
	reserved, surplus, err := reservation(size)
	if err != nil {
		return 0, err
	}
	grown := surplus + pages
	for range 3 {
		if err := setPages(size, reserved+grown); err != nil {
			return 0, err
		}
		now, _, err := reservation(size)
		if err != nil || now >= reserved+grown {
			return grown, err
		}
		_ = os.WriteFile("/proc/sys/vm/compact_memory", []byte("1"), 0)
	}
	now, _, _ := reservation(size)
	_ = setPages(size, reserved)
	return 0, fmt.Errorf("reserve %d huge pages of %d KiB: the kernel found only %d (free memory, or restart to have it less scattered)",
		pages, size>>10, now-reserved-surplus)
}

// returnPages lowers the reservation by pages once that many are free. The
// kernel frees the pages of a closed socket or ring a while after the close.
func returnPages(size uint64, pages int64, limit time.Duration) error {
	var err error
	done := within(limit, func() bool {
		var ok bool
		ok, err = tryReturn(size, pages)
		return ok || err != nil
	})
	if err != nil || done {
		return err
	}
	return fmt.Errorf("give back %d huge pages of %d KiB: fewer are free after %v, so something still holds them", pages, size>>10, limit)
}

func tryReturn(size uint64, pages int64) (ok bool, err error) {
	err = counted(func() error {
		var err error
		ok, err = lowerPages(size, pages)
		return err
	})
	return ok, err
}

// counted runs f while nobody else changes a reservation. The programs under test
// hold the same lock when they do (umem.Reserve).
func counted(f func() error) error {
	dir, err := os.Open(filepath.Dir(filepath.Dir(pageFile(HugePageSize, "nr_hugepages"))))
	if err != nil {
		return fmt.Errorf("lock the huge-page reservations: %w", err)
	}
	defer dir.Close()
	if err := flock(dir, unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock the huge-page reservations: %w", err)
	}
	return f()
}

// lowerPages takes pages out of the reservation if that many are free and not
// promised to a mapping. It runs under counted.
func lowerPages(size uint64, pages int64) (bool, error) {
	free, err1 := pageCount(size, "free_hugepages")
	promised, err2 := pageCount(size, "resv_hugepages")
	reserved, _, err3 := reservation(size)
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			return false, err
		}
	}
	if free-promised < pages {
		return false, nil
	}
	return true, setPages(size, max(0, reserved-pages))
}

// undoPages is returnPages for the ledger: value is "size pages". What a dead
// process held is free by now, or soon, or held by something that it had started.
func undoPages(value string) error {
	var size uint64
	var pages int64
	if _, err := fmt.Sscan(value, &size, &pages); err != nil {
		return err
	}
	return returnPages(size, pages, time.Second)
}

// pageFile names one counter of a huge-page size
// (Documentation/admin-guide/mm/hugetlbpage.rst).
func pageFile(size uint64, counter string) string {
	return fmt.Sprintf("/sys/kernel/mm/hugepages/hugepages-%dkB/%s", size>>10, counter)
}

// reservation is how many pages are reserved, and how many there are beyond that: those that were
// given back while in use. nr_hugepages is the sum when read, and the first alone when written.
func reservation(size uint64) (reserved, surplus int64, err error) {
	for {
		total, err1 := pageCount(size, "nr_hugepages")
		surplus, err2 := pageCount(size, "surplus_hugepages")
		again, err3 := pageCount(size, "nr_hugepages")
		if err := errors.Join(err1, err2, err3); err != nil || total == again && surplus <= total {
			return total - surplus, surplus, err
		}
	}
}

// pageCount reads a counter. While a mapping goes away the kernel's promised pages
// are below zero for a moment, and shown without their sign; that counts as none.
func pageCount(size uint64, counter string) (int64, error) {
	text, err := os.ReadFile(pageFile(size, counter))
	if err != nil {
		return 0, fmt.Errorf("read the huge-page counter: %w", err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return max(0, int64(n)), err
}

func setPages(size uint64, pages int64) error {
	file := pageFile(size, "nr_hugepages")
	if err := os.WriteFile(file, []byte(strconv.FormatInt(pages, 10)), 0); err != nil {
		return fmt.Errorf("set the huge-page reservation: %w", err)
	}
	return nil
}
