package starter

import (
	"fmt"
	"os"
	"time"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/pages"
)

// pagesThere says whether all pages are free already.
func (o Options) pagesThere() (bool, error) {
	for _, n := range o.Pages {
		if free, err := n.Free(); err != nil || !free {
			return false, err
		}
	}
	return true, nil
}

// reserve adds the pages that are missing, and returns what gives them back.
func (o Options) reserve() (giveBack func() error, err error) {
	held, err := pages.Reserve(o.Pages)
	if err != nil {
		return nil, fmt.Errorf("%w (start as root, or reserve them at boot)", err)
	}
	if n := held.Added(); n > 0 && o.Announce {
		fmt.Fprintf(os.Stderr, "reserved %d huge pages until the end\n", n)
	}
	return func() error {
		o.await()
		return held.GiveBack()
	}, nil
}

// patience is how long the kernel may take to free the pages of a process that
// has ended.
const patience = 3 * time.Second

// await waits until the daemon's pages are free. Taken away before, they would
// count as surplus until then.
func (o Options) await() {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if there, err := o.pagesThere(); err != nil || there {
			return
		}
	}
}
