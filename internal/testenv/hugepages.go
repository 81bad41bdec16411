package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/hugetlb"
)

// hugePageSize is the size in bytes of the pages HugePages reserves.
const hugePageSize = 2 << 20

// spare is how many pages HugePages permits the kernel to make beyond those that the test asks for. Other
// programs of the machine may use as many of them.
const spare = 512

// HugePages reserves 2 MiB pages for at least that many bytes, in addition to those that the machine has. It
// also lets the kernel make more pages when they are mapped (nr_overcommit_hugepages). So a test gets its pages
// even if another program takes the reserved ones. The end of the test takes back both.
func HugePages(t testing.TB, bytes uint64) {
	t.Helper()
	Root(t)
	want := hugetlb.MiB2.Pages(bytes)
	if want == 0 {
		return
	}
	r := hugetlb.Raise{Size: hugetlb.MiB2, Node: -1}
	more := want + spare
	err := counted(func() error { return errors.Join(overcommit(more, 0), addPages(&r, want)) })
	if err != nil {
		t.Fatal(errors.Join(err, counted(func() error { return overcommit(0, more) })))
	}
	forget := note(t, "hugepages", fmt.Sprintf("%d %d", r.By, more))
	t.Cleanup(func() {
		t.Helper()
		Check(t, returnPages(r.By, more))
		forget()
	})
}

// addPages adds all pages or none. The caller holds the lock of counted.
func addPages(r *hugetlb.Raise, pages uint64) error {
	if err := r.Add(pages, func(hugetlb.Raise) error { return nil }); err != nil {
		return fmt.Errorf("reserve %d %v: %w", pages, r.Size, err)
	}
	return nil
}

// overcommit changes how many pages the kernel may make on demand, by a difference, since other tests do the
// same. The caller holds the lock of counted.
func overcommit(more, fewer uint64) error {
	file := filepath.Join(hugetlb.MiB2.Dir(-1), "nr_overcommit_hugepages")
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("permit huge pages on demand: %w", err)
	}
	now, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return fmt.Errorf("permit huge pages on demand: %s: %w", file, err)
	}
	return os.WriteFile(file, strconv.AppendUint(nil, now+more-min(fewer, now), 10), 0o644)
}

// returnPages takes back what HugePages added. The kernel keeps pages that are in use until they are free.
func returnPages(reserved, permitted uint64) error {
	return counted(func() error {
		now, _, err := hugetlb.Reservation(hugetlb.MiB2, -1)
		if err != nil {
			return err
		}
		return errors.Join(hugetlb.Set(hugetlb.MiB2, -1, now-min(reserved, now)), overcommit(0, permitted))
	})
}

// counted runs f while no other process changes a reservation. The programs under test take the
// same lock for their changes.
func counted(f func() error) error {
	unlock, err := hugetlb.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	return f()
}

// undoPages is returnPages for the ledger.
func undoPages(value string) error {
	var reserved, permitted uint64
	if _, err := fmt.Sscan(value, &reserved, &permitted); err != nil {
		return err
	}
	return returnPages(reserved, permitted)
}
