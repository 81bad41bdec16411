package umem

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/hugetlb"
)

// PageSize is the kind of page that backs a region.
type PageSize uint8

const (
	// Auto, the default, is 2 MiB huge pages if enough of them are free or can be reserved, and otherwise Ordinary.
	Auto PageSize = iota
	// Huge2M is 2 MiB huge pages.
	Huge2M
	// Huge1G is 1 GiB huge pages, which not every processor has.
	Huge1G
	// Ordinary is the machine's base pages, locked in memory. They are slower for every device, and
	// only for machines without huge pages.
	Ordinary
)

// Bytes returns the size of one page.
func (p PageSize) Bytes() uint64 {
	switch p {
	case Huge1G:
		return uint64(hugetlb.GiB1)
	case Ordinary:
		return uint64(os.Getpagesize())
	}
	return uint64(hugetlb.MiB2)
}

func (p PageSize) String() string {
	if p == Ordinary {
		return "ordinary pages"
	}
	return p.huge().String()
}

// huge returns the size of the kernel's huge pages. p must not be Ordinary.
func (p PageSize) huge() hugetlb.Size { return hugetlb.Size(p.Bytes()) }

// FreePages returns how many huge pages of the size are free, without those promised to a mapping,
// and how many there are. It counts on one NUMA node or, if node < 0, on the machine. For a single
// node the kernel does not report how many are promised.
func FreePages(p PageSize, node int) (free, total uint64, err error) {
	if p == Ordinary {
		return 0, 0, fmt.Errorf("count huge pages: %v are not reserved", p)
	}
	if free, total, err = hugetlb.Free(p.huge(), node); err != nil {
		return 0, 0, fmt.Errorf("count %v: %w", p, err)
	}
	return free, total, nil
}

// MayReserve reports whether this process may reserve huge pages of 2 MiB.
func MayReserve() bool {
	return unix.Faccessat(unix.AT_FDCWD, Huge2M.huge().Dir(-1)+"/nr_hugepages", unix.W_OK, unix.AT_EACCESS) == nil
}

// Need is a number of huge pages that a region takes.
type Need struct {
	Pages PageSize
	Node  int    // NUMA node; negative: any
	Bytes uint64 // amount of memory, rounded up to whole pages
}

// Count returns the number of pages.
func (n Need) Count() uint64 { return n.Pages.huge().Pages(n.Bytes) }

// Needs returns which huge pages a region takes: its own, and 2 MiB pages for the control area
// beside it and for what attached programs only read. A region on ordinary pages takes none. One of Auto takes them if
// they are there.
func (c Config) Needs() []Need {
	node := -1
	if c.Node != nil {
		node = *c.Node
	}
	size, control := roundUp(c.Size, c.Pages.Bytes()), roundUp(c.Control, Huge2M.Bytes())
	for _, s := range c.Slices {
		control += roundUp(s.In, Huge2M.Bytes())
	}
	if c.Device != "" {
		size = 0
	}
	switch {
	case c.Pages == Ordinary:
		return nil
	case size == 0 && control == 0:
		return nil
	case size == 0:
		return []Need{{Huge2M, node, control}}
	case c.Pages == Huge2M, c.Pages == Auto:
		return []Need{{Huge2M, node, size + control}}
	case control == 0:
		return []Need{{c.Pages, node, size}}
	}
	return []Need{{c.Pages, node, size}, {Huge2M, node, control}}
}
