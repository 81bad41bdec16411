package pages

import (
	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/umem"
)

// Need is huge pages to have free.
type Need struct {
	Size  umem.PageSize
	Node  int    // NUMA node; negative: any
	Bytes uint64 // how much memory, rounded up to whole pages
}

// Count is the number of pages.
func (n Need) Count() uint64 { return (n.Bytes + n.Size.Bytes() - 1) / n.Size.Bytes() }

// Free reports whether the pages are free.
func (n Need) Free() (bool, error) {
	free, _, err := umem.FreePages(n.Size, n.Node)
	return free >= n.Count(), err
}

// For is what a region takes: its own pages, and 2 MiB pages for the control area
// beside it. Nothing for a region on ordinary pages.
func For(r config.Region) []Need {
	node := -1
	if r.Node != nil {
		node = *r.Node
	}
	all := flows.RegionBytes(r)
	switch r.Pages {
	case config.PagesOrdinary:
		return nil
	case config.Pages1GiB:
		size := uint64(r.Size)
		return []Need{{umem.Huge1G, node, size}, {umem.Huge2M, node, all - size}}
	}
	return []Need{{umem.Huge2M, node, all}}
}
