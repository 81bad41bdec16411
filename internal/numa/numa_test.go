package numa

import (
	"os"
	"slices"
	"testing"
)

func TestParseList(t *testing.T) {
	for text, want := range map[string][]int{"": nil, "0": {0}, "0-3,8": {0, 1, 2, 3, 8}, "5,7-7": {5, 7}} {
		if got, err := parseList(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"x", "3-1", "1-", "-1", "0-70000", "0-65000,0-65000", "1,,2"} {
		if got, err := parseList(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// TestMachine: the functions work on any machine.
func TestMachine(t *testing.T) {
	for _, node := range Nodes() {
		cpus, err := CPUs(node)
		for _, cpu := range cpus {
			if got := OfCPU(cpu); got != node {
				t.Errorf("CPU %d of node %d is said to be of %d", cpu, node, got)
			}
		}
		t.Logf("node %d: %v, %v", node, cpus, err)
	}
	if _, err := CPUs(4711); err == nil {
		t.Error("node 4711 has processors")
	}
	for what, got := range map[string]int{
		"a PCI device that is not there": OfPCI("ffff:ff:1f.7"), "a path for an address": OfPCI("../../../class"),
		"no address": OfPCI(""), "a file that is not there": OfPath("/nowhere"), "memory": OfPath("/dev/null"), "/proc": OfPath("/proc"),
	} {
		if got != Unknown {
			t.Errorf("%s is of node %d", what, got)
		}
	}
	if dir, err := os.Getwd(); err == nil {
		t.Logf("%s is of node %d", dir, OfPath(dir))
	}
}
