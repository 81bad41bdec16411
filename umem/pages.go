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
	return ReserveNoted(p, node, need, func(Raise) error { return nil })
}

// ReserveNoted is Reserve with a witness: note is told what is about to change, and
// again when it has. Where it keeps that, another process can give the pages back
// when this one is killed. An error of note's changes nothing; it is not called when
// enough pages are free.
func ReserveNoted(p PageSize, node int, need uint64, note func(Raise) error) (back func() error, err error) {
	unlock, err := lockPages()
	if err != nil {
		return nil, fmt.Errorf("reserve %v: %w", p, err)
	}
	defer unlock()
	free, _, err := FreePages(p, node)
	if err != nil {
		return nil, err
	}
	pages := pagesFor(need, p)
	if pages <= free {
		return func() error { return nil }, nil
	}
	r := Raise{Pages: p, Node: node}
	if err := r.make(pages-free, note); err != nil {
		return nil, fmt.Errorf("reserve %d %v: %w", pages-free, p, err)
	}
	return sync.OnceValue(r.GiveBack), nil
}

// Raise is one change of a reservation.
type Raise struct {
	Pages PageSize
	Node  int    // negative: of the machine
	From  uint64 // pages that were reserved
	By    uint64 // pages added, or at most to be added
	Made  bool   // it is done; before, the kernel may have added a part
}

// make adds free pages. The reservation grows by more where the kernel has surplus
// pages, since it makes those part of the reservation before it looks for others
// (set_max_huge_pages in mm/hugetlb.c).
func (r *Raise) make(pages uint64, note func(Raise) error) error {
	dir := r.Pages.dir(r.Node)
	reserved, surplus, err := reservation(dir)
	if err != nil {
		return err
	}
	r.From, r.By = reserved, surplus+pages
	if err := note(*r); err != nil {
		return err
	}
	if err := writeCount(dir, reserved+surplus+pages); err != nil {
		return err
	}
	now, _, err := reservation(dir)
	if err != nil {
		return errors.Join(err, writeCount(dir, reserved))
	}
	raised := now - min(reserved, now)
	if raised < surplus+pages {
		return errors.Join(fmt.Errorf("the kernel found memory for only %d: %w (free memory or reserve them at boot)",
			raised-min(surplus, raised), unix.ENOMEM), lower(dir, raised))
	}
	r.By, r.Made = raised, true
	if err := note(*r); err != nil {
		return errors.Join(err, lower(dir, raised))
	}
	return nil
}

// GiveBack takes the pages off the reservation, those of a raise that was not made
// to its end as far as they are there. It is to be called once; the process need not
// be the one that raised.
func (r Raise) GiveBack() error {
	unlock, err := lockPages()
	if err != nil {
		return fmt.Errorf("give back %d huge pages: %w", r.By, err)
	}
	defer unlock()
	dir, n := r.Pages.dir(r.Node), r.By
	if !r.Made {
		reserved, _, err := reservation(dir)
		if err != nil {
			return fmt.Errorf("give back %d huge pages: %w", n, err)
		}
		n = min(n, reserved-min(r.From, reserved))
	}
	return lower(dir, n)
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

// pagesFor is how many pages hold n bytes.
func pagesFor(n uint64, p PageSize) uint64 {
	pages := n / p.Bytes()
	if n%p.Bytes() != 0 {
		pages++
	}
	return pages
}

// lower takes n pages off the reservation. Those in use the kernel keeps as surplus
// until they are free.
func lower(dir string, n uint64) error {
	if n == 0 {
		return nil
	}
	reserved, _, err := reservation(dir)
	if err == nil {
		err = writeCount(dir, reserved-min(n, reserved))
	}
	left := reserved
	if err == nil {
		left, _, err = reservation(dir)
	}
	if err == nil && left+min(n, reserved) > reserved {
		err = fmt.Errorf("the kernel keeps %d of them reserved", left+n-reserved)
	}
	if err != nil {
		return fmt.Errorf("give back %d huge pages: %w", n, err)
	}
	return nil
}

// reservation reads how many pages are reserved, and how many there are beyond
// that. nr_hugepages is the sum when read, and the first alone when written. Read
// again when a page went away between the two counters.
func reservation(dir string) (reserved, surplus uint64, err error) {
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

func readCount(file string) (uint64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
}

// writeCount sets how many pages are reserved.
func writeCount(dir string, n uint64) error {
	return os.WriteFile(filepath.Join(dir, "nr_hugepages"), strconv.AppendUint(nil, n, 10), 0o644)
}
