package flows

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/numa"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestNUMAFlow captures from a card to a disk, both of the last node. With the region on that node, the
// status has no warnings. With the region on the first node, the status names the devices whose packets cross
// between nodes.
func TestNUMAFlow(t *testing.T) {
	labenv.Guest(t)
	testenv.Long(t, "make lab NODES=2 runs this")
	all := numa.Nodes()
	last := all[len(all)-1]
	for _, node := range slices.Compact([]int{last, all[0]}) {
		t.Run(fmt.Sprintf("region on node %d", node), func(t *testing.T) {
			testenv.HugePages(t, 40<<20)
			l := &lab{Pair: labenv.Igb(t)}
			d := l.open(t, fmt.Sprintf(`
region: {size: 32MiB, extents: 8, node: %d}
flows:
  - name: cap
    from: {interface: %s, ring: 512}
    to: {device: %s, force: true, segment: {size: 8MiB}}
`, node, l.B.Ifname, labenv.Disk), Options{})
			l.B.Do(t, func() {
				testenv.Must(t, d.Start())
			})
			labenv.Carry(t, l.Pair)
			const n = 200
			testenv.SendRaw(t, &l.A, testenv.Stream(&l.A, &l.B, 9, 0, n, 1000), testenv.SendOptions{Rate: 500})
			f := d.Flows()[0]
			s := await(t, f, "the packets", func(s status.Flow) bool { return s.Durable.Packets >= n })
			at := func(p *int) int {
				if p == nil {
					return numa.Unknown
				}
				return *p
			}
			if len(all) > 1 && (at(s.CardNode) != last || at(s.DiskNode) != last) {
				t.Errorf("the card is of node %d, the disk of node %d, want %d", at(s.CardNode), at(s.DiskNode), last)
			}
			if far := strings.Join(s.Far, "\n"); (node != last) != (strings.Contains(far, "the card") && strings.Contains(far, labenv.Disk)) || strings.Contains(far, "worker") {
				t.Errorf("far: %q", s.Far)
			}
			whole := d.Status()
			if r := whole.Region; len(r.Nodes) != 1 || r.Nodes[node] != r.Bytes {
				t.Errorf("the region lies on %v, want all %d bytes on node %d", r.Nodes, r.Bytes, node)
			}
			if w := whole.Workers[0]; at(w.Node) != node {
				t.Errorf("the worker is said to be on node %d", at(w.Node))
			}
			l.onNode(t, node)
		})
	}
}

// onNode checks that the worker's thread may run on the CPUs of a node, and only there.
func (l *lab) onNode(t *testing.T, node int) {
	t.Helper()
	var set unix.CPUSet
	err := l.daemon.workers[0].Do(func() error { return unix.SchedGetaffinity(0, &set) })
	cpus, nodeErr := numa.CPUs(node)
	if err != nil || nodeErr != nil {
		t.Fatal(err, nodeErr)
	}
	if set.Count() != len(cpus) {
		t.Errorf("the worker may run on %d CPUs, node %d has %v", set.Count(), node, cpus)
	}
	for _, cpu := range cpus {
		if !set.IsSet(cpu) {
			t.Errorf("the worker may not run on CPU %d of node %d", cpu, node)
		}
	}
}

// TestNUMAWorkerFar pins a worker to a CPU of another node than the region's.
func TestNUMAWorkerFar(t *testing.T) {
	labenv.Guest(t)
	testenv.Long(t, "make lab NODES=2 runs this")
	all := numa.Nodes()
	cpus, err := numa.CPUs(all[len(all)-1])
	testenv.Must(t, err)
	testenv.HugePages(t, 40<<20)
	l := &lab{Pair: labenv.VirtioNet(t)}
	d := l.open(t, fmt.Sprintf(`
region: {size: 32MiB, extents: 8, node: %d}
workers: [{name: main, cpu: %d}]
flows:
  - name: cap
    from: {interface: %s, ring: 512}
    to: {device: %s, force: true, segment: {size: 8MiB}}
`, all[0], cpus[0], l.A.Ifname, labenv.Disk), Options{})
	l.A.Do(t, func() {
		testenv.Must(t, d.Start())
	})
	far := strings.Join(d.Flows()[0].Status().Far, "\n")
	if strings.Contains(far, "worker main is on NUMA node") != (len(all) > 1) {
		t.Errorf("far: %q", far)
	}
}
