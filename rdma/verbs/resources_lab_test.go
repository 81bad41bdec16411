//go:build lab && verbs && cgo

package verbs

import (
	"testing"

	"github.com/vishvananda/netlink"
)

// atRest holds the kernel's account of a device to what it has by itself: a queue pair for
// management, with its completion queue and domain.
func atRest(t *testing.T, device string) {
	t.Helper()
	all, err := netlink.RdmaResourceList()
	if err != nil {
		t.Fatalf("read the kernel's account of RDMA resources: %v", err)
	}
	for _, r := range all {
		if r.Name != device {
			continue
		}
		t.Log(r.RdmaResourceSummaryEntries)
		for what, most := range map[string]uint64{"qp": 1, "cq": 1, "pd": 1, "mr": 0, "cm_id": 0, "ctx": 0, "srq": 0} {
			if n := r.RdmaResourceSummaryEntries[what]; n > most {
				t.Errorf("%s has %d %s left", device, n, what)
			}
		}
		return
	}
	t.Errorf("the kernel has no account of %s", device)
}
