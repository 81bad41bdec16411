package labenv

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// byItself has the resources that the kernel itself uses of an idle RDMA device: a queue pair for
// management, with its completion queue and protection domain.
var byItself = map[string]int{"qp": 1, "cq": 1, "pd": 1}

// counted are the kinds of resources that RDMAAtRest checks.
var counted = []string{"qp", "cq", "pd", "mr", "cm_id", "ctx", "srq"}

// RDMAAtRest waits until only the kernel itself uses resources of an RDMA device. The kernel may
// take a moment to free the resources of a killed process. kept lists kinds that are not checked,
// because a kernel module keeps them until the device is removed.
func RDMAAtRest(t testing.TB, device string, kept ...string) {
	t.Helper()
	left := ""
	defer func() {
		if left != "" {
			t.Logf("left: %s", left)
		}
	}()
	testenv.Wait(t, 10*time.Second, "what "+device+" has in use to be given back", func() bool {
		left = resourcesLeft(t, device, kept)
		return left == ""
	})
}

// resourcesLeft lists the resources of a device that are still in use. It is empty if there are
// none.
func resourcesLeft(t testing.TB, device string, kept []string) string {
	t.Helper()
	all := RDMAResources(t, device)
	var left []string
	for _, what := range counted {
		if n := all[what]; n > byItself[what] && !slices.Contains(kept, what) {
			left = append(left, fmt.Sprintf("%d %s", n, what))
		}
	}
	return strings.Join(left, ", ")
}

// RDMAResources returns the number of resources of each kind that an RDMA device has in use. It
// runs rdma(8) of iproute2, which can parse attributes that a newer kernel adds.
func RDMAResources(t testing.TB, device string) map[string]int {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, "rdma"), "-j", "resource", "show").Output()
	var all []map[string]any
	if err == nil {
		err = json.Unmarshal(out, &all)
	}
	testenv.Mustf(t, err, "read the kernel's account of RDMA resources")
	i := slices.IndexFunc(all, func(r map[string]any) bool { return r["ifname"] == device })
	if i < 0 {
		t.Fatalf("the kernel has no account of %s", device)
	}
	count := make(map[string]int)
	for _, what := range counted {
		n, _ := all[i][what].(float64)
		count[what] = int(n)
	}
	return count
}
