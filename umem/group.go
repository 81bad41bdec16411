package umem

import (
	"fmt"

	"github.com/unifiedd/unifiedd/internal/cgroup"
)

// checkGroup checks that the control group of this process may take the region's huge pages. The kernel would not
// say so: a limit that is not one of reservations ends the process with SIGBUS when it first touches the memory.
func (c Config) checkGroup() error { return c.checkLimit(cgroup.HugePages) }

func (c Config) checkLimit(limit func(size uint64) (cgroup.Limit, bool)) error {
	for _, n := range c.Needs() {
		l, limited := limit(n.Pages.Bytes())
		if need := n.Count() * n.Pages.Bytes(); limited && l.Left < need {
			return fmt.Errorf("the control group may take %d more %v, and the region needs %d (raise the limit in %s, or lower region.size)",
				l.Left/n.Pages.Bytes(), n.Pages, n.Count(), l.File)
		}
	}
	return nil
}
