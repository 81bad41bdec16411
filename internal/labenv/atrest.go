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

// byItself is what the kernel has of an RDMA device that nobody uses: a queue pair for management, with its
// completion queue and domain.
var byItself = map[string]int{"qp": 1, "cq": 1, "pd": 1}

// counted are the kinds of resources that are looked at.
var counted = []string{"qp", "cq", "pd", "mr", "cm_id", "ctx", "srq"}

// RDMAAtRest waits until the kernel has no more of an RDMA device in use than it has by itself. What a process
// that was killed had may take a moment. Not looked at are kinds that a module of the kernel keeps until the device is gone.
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

// resourcesLeft says what a device has in use, empty when that is nothing.
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

// RDMAResources is how many the kernel has of each kind of an RDMA device's resources. The program of iproute2 knows what to do with
// what a newer kernel tells besides.
func RDMAResources(t testing.TB, device string) map[string]int {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, "rdma"), "-j", "resource", "show").Output()
	var all []map[string]any
	if err == nil {
		err = json.Unmarshal(out, &all)
	}
	if err != nil {
		t.Fatalf("read the kernel's account of RDMA resources: %v", err)
	}
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
