package umem

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// PageSize is the kind of page that backs a region.
type PageSize uint8

const (
	// Huge2M is 2 MiB huge pages, the default.
	Huge2M PageSize = iota
	// Huge1G is 1 GiB huge pages.
	Huge1G
	// Ordinary is the machine's base pages, locked in memory. Slower for every
	// device; only for machines without huge pages.
	Ordinary
)

func (p PageSize) bytes() int {
	switch p {
	case Huge1G:
		return 1 << 30
	case Ordinary:
		return os.Getpagesize()
	}
	return 2 << 20
}

// Bytes is the size of one page.
func (p PageSize) Bytes() uint64 { return uint64(p.bytes()) }

func (p PageSize) String() string {
	switch p {
	case Huge1G:
		return "1 GiB huge pages"
	case Ordinary:
		return "ordinary pages"
	}
	return "2 MiB huge pages"
}

// pagesDir is the kernel's directory for all sizes of huge page.
const pagesDir = "/sys/kernel/mm/hugepages"

// dir is the kernel's directory for this size of huge page, of one NUMA node or
// (node < 0) of the machine: Documentation/admin-guide/mm/hugetlbpage.rst.
func (p PageSize) dir(node int) string {
	name := fmt.Sprintf("hugepages-%dkB", p.bytes()>>10)
	if node < 0 {
		return filepath.Join(pagesDir, name)
	}
	return filepath.Join("/sys/devices/system/node", fmt.Sprintf("node%d", node), "hugepages", name)
}

// FreePages returns how many huge pages of the size are free, not counting those
// promised to a mapping already, and how many there are, on one NUMA node or
// (node < 0) on the machine. Of a node the kernel does not say what is promised.
func FreePages(p PageSize, node int) (free, total uint64, err error) {
	if p == Ordinary {
		return 0, 0, fmt.Errorf("count huge pages: %v are not reserved", p)
	}
	var promised uint64
	counters := map[string]*uint64{"free_hugepages": &free, "nr_hugepages": &total, "resv_hugepages": &promised}
	if node >= 0 {
		delete(counters, "resv_hugepages")
	}
	for name, n := range counters {
		if *n, err = readCount(filepath.Join(p.dir(node), name)); err != nil {
			return 0, 0, fmt.Errorf("count %v: %w", p, err)
		}
	}
	return free - min(promised, free), total, nil
}

// Reserve raises the number of huge pages of the size until at least need bytes
// are free, on one NUMA node or (node < 0) on the machine, and returns what gives
// those added back, once however often it is called. Processes that reserve at the
// same time wait for each other. It needs root, and changes
// nothing when it returns an error. Where the kernel finds too little memory in one
// piece the error is ENOMEM.
func Reserve(p PageSize, node int, need uint64) (back func() error, err error) {
	unlock, err := lockPages()
	if err != nil {
		return nil, fmt.Errorf("reserve %v: %w", p, err)
	}
	defer unlock()
	free, total, err := FreePages(p, node)
	if err != nil {
		return nil, err
	}
	pages := pagesFor(need, p)
	if pages <= free {
		return func() error { return nil }, nil
	}
	added := pages - free
	file := filepath.Join(p.dir(node), "nr_hugepages")
	if err := writeCount(file, total+added); err != nil {
		return nil, fmt.Errorf("reserve %d %v: %w", added, p, err)
	}
	now, err := readCount(file)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reserve %d %v: %w", added, p, err), writeCount(file, total))
	}
	if got := now - min(total, now); got < added {
		return nil, errors.Join(fmt.Errorf("reserve %d %v: the kernel found memory for only %d: %w (free memory or reserve them at boot)",
			added, p, got, unix.ENOMEM), lower(file, got))
	}
	return sync.OnceValue(func() error { return giveBack(file, added) }), nil
}

// lockPages keeps other processes that call Reserve from changing a reservation:
// between reading the kernel's counter and writing it a change of theirs would be
// lost, and their pages with it, or left for good.
func lockPages() (unlock func(), err error) {
	f, err := os.Open(pagesDir)
	if err != nil {
		return nil, err
	}
	err = unix.EINTR
	for err == unix.EINTR { // Go's own preemption is a signal, too
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", pagesDir, err)
	}
	return func() { f.Close() }, nil
}

// giveBack is lower while nobody else changes the reservation.
func giveBack(file string, n uint64) error {
	unlock, err := lockPages()
	if err != nil {
		return fmt.Errorf("give back %d huge pages: %w", n, err)
	}
	defer unlock()
	return lower(file, n)
}

// pagesFor is how many pages hold n bytes.
func pagesFor(n uint64, p PageSize) uint64 {
	pages := n / p.Bytes()
	if n%p.Bytes() != 0 {
		pages++
	}
	return pages
}

// lower takes n pages off the reservation.
func lower(file string, n uint64) error {
	if n == 0 {
		return nil
	}
	total, err := readCount(file)
	if err == nil {
		err = writeCount(file, total-min(n, total))
	}
	if err != nil {
		return fmt.Errorf("give back %d huge pages: %w", n, err)
	}
	return nil
}

func readCount(file string) (uint64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
}

func writeCount(file string, n uint64) error {
	return os.WriteFile(file, strconv.AppendUint(nil, n, 10), 0o644)
}
