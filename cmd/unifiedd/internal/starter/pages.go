package starter

import (
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/umem"
)

// Pages are huge pages to have free.
type Pages struct {
	Size  umem.PageSize
	Node  int    // NUMA node; -1: any
	Bytes uint64 // how much memory, rounded up to whole pages
}

// Count is the number of pages.
func (p Pages) Count() uint64 { return (p.Bytes + p.Size.Bytes() - 1) / p.Size.Bytes() }

// pagesThere says whether all pages are free already.
func (o Options) pagesThere() (bool, error) {
	for _, p := range o.Pages {
		free, _, err := umem.FreePages(p.Size, p.Node)
		if err != nil {
			return false, err
		}
		if free < p.Count() {
			return false, nil
		}
	}
	return true, nil
}

// reserve adds what is missing, and returns what gives it back.
func (p Pages) reserve() (giveBack func() error, err error) {
	back, err := umem.Reserve(p.Size, p.Node, p.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w (start as root, or reserve them at boot)", err)
	}
	return func() error {
		p.await()
		return back()
	}, nil
}

// patience is how long the kernel may take to free the pages of a process that
// has ended.
const patience = 3 * time.Second

// await waits until the daemon's pages are free. Taken away before, they would
// count as surplus until then.
func (p Pages) await() {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if free, _, err := umem.FreePages(p.Size, p.Node); err != nil || free >= p.Count() {
			return
		}
	}
}
