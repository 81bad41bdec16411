package group

import (
	"os/exec"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

//lab:program cmd/unifiedd
//lab:program selftests/unified-flow-test

// TestFailOverNetem: leaders fail while the kernel's netem loses and delays frames to all members and to the
// client. At the end all logs have every message once and in order, and they are equal.
func TestFailOverNetem(t *testing.T) {
	labenv.Guest(t)
	if out, err := exec.Command("modprobe", "sch_netem").CombinedOutput(); err != nil {
		t.Fatalf("load netem: %v\n%s", err, out)
	}
	perClient, rate, suspect = 200, 50, 3*time.Second // the guest is emulated
	g := newGroup(t, 1)
	g.leader(-1, 0)
	for _, e := range g.ends {
		e.DisturbByKernel(t, testenv.Disturbance{Loss: 0.005, Delay: 2 * time.Millisecond, Jitter: time.Millisecond})
	}
	results := map[string][]result{}
	for i := range 3 { // kill, pause, cut
		if testing.Short() && i > 0 {
			break
		}
		if g.client != nil {
			g.client.Await(t, limit)
		}
		results[faults[i].name] = append(results[faults[i].name], g.suffer(&faults[i]))
	}
	g.client.Await(t, limit)
	g.equal()
	for _, d := range g.now {
		d.Terminate(t)
	}
	g.compare()
	g.report(results)
}
