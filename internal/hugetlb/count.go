package hugetlb

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// pagesDir is the kernel's directory for all sizes of huge page.
const pagesDir = "/sys/kernel/mm/hugepages"

// Size is the size of a huge page in bytes.
type Size uint64

const (
	// MiB2 is a page of 2 MiB, the default of most processors.
	MiB2 Size = 2 << 20
	// GiB1 is a page of 1 GiB, which not every processor has.
	GiB1 Size = 1 << 30
)

func (s Size) String() string {
	if s == GiB1 {
		return "1 GiB huge pages"
	}
	return fmt.Sprintf("%d MiB huge pages", uint64(s)>>20)
}

// Pages is how many pages hold n bytes.
func (s Size) Pages(n uint64) uint64 {
	pages := n / uint64(s)
	if n%uint64(s) != 0 {
		pages++
	}
	return pages
}

// Dir is the kernel's directory for the size, of one NUMA node or (node < 0) of the
// machine.
func (s Size) Dir(node int) string {
	name := fmt.Sprintf("hugepages-%dkB", uint64(s)>>10)
	if node < 0 {
		return filepath.Join(pagesDir, name)
	}
	return filepath.Join("/sys/devices/system/node", fmt.Sprintf("node%d", node), "hugepages", name)
}

// UnsupportedError means that the machine has no pages of a size. It matches errors.ErrUnsupported.
type UnsupportedError struct{ Size Size }

func (e *UnsupportedError) Error() string {
	if e.Size == GiB1 {
		return fmt.Sprintf("this machine has no %v: its processor (flag pdpe1gb) or its kernel lacks them (use pages of 2 MiB)", e.Size)
	}
	return fmt.Sprintf("this machine has no %v: its kernel is built without CONFIG_HUGETLBFS (use ordinary pages)", e.Size)
}

// Is reports whether target is errors.ErrUnsupported.
func (e *UnsupportedError) Is(target error) bool { return target == errors.ErrUnsupported }

// Supported returns an *[UnsupportedError] if the kernel lists its sizes of huge page and the size
// is not among them.
func Supported(s Size) error {
	if _, err := os.Stat("/sys/kernel/mm"); err != nil {
		return nil // without sysfs only an attempt shows it
	}
	if _, err := os.Stat(s.Dir(-1)); errors.Is(err, os.ErrNotExist) {
		return &UnsupportedError{s}
	}
	return nil
}

// Free returns how many pages are free, without those already promised to a mapping, and how many
// there are, on one NUMA node or (node < 0) on the machine. For a node the kernel does not report
// the promised pages.
func Free(s Size, node int) (free, total uint64, err error) {
	if err := Supported(s); err != nil {
		return 0, 0, err
	}
	var promised uint64
	counters := map[string]*uint64{"free_hugepages": &free, "nr_hugepages": &total, "resv_hugepages": &promised}
	if node >= 0 {
		delete(counters, "resv_hugepages")
	}
	for name, n := range counters {
		if *n, err = readCount(filepath.Join(s.Dir(node), name)); err != nil {
			return 0, 0, fmt.Errorf("count %v: %w", s, err)
		}
	}
	return free - min(promised, free), total, nil
}

// Reservation reads how many pages are reserved, and how many surplus pages there are: those whose
// reservation was removed while they were in use. nr_hugepages is the sum of both when read, and
// the first alone when written. Reservation reads again if a page disappears between the two
// counters.
func Reservation(s Size, node int) (reserved, surplus uint64, err error) {
	dir := s.Dir(node)
	for {
		total, err1 := readCount(filepath.Join(dir, "nr_hugepages"))
		surplus, err2 := readCount(filepath.Join(dir, "surplus_hugepages"))
		again, err3 := readCount(filepath.Join(dir, "nr_hugepages"))
		if err := errors.Join(err1, err2, err3); err != nil {
			return 0, 0, err
		}
		if total == again && surplus <= total {
			return total - surplus, surplus, nil
		}
	}
}

// readCount reads one counter. While the kernel removes a mapping, its counter of promised pages is
// briefly negative and printed without the sign. readCount returns 0 for that.
func readCount(file string) (uint64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	return uint64(max(0, int64(n))), err
}

// Set sets how many pages are reserved. The caller holds the lock.
func Set(s Size, node int, pages uint64) error {
	return os.WriteFile(filepath.Join(s.Dir(node), "nr_hugepages"), strconv.AppendUint(nil, pages, 10), 0o644)
}
