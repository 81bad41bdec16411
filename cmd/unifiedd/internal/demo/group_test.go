package demo

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/latency"
)

// goodGroup returns a group in which everything adds up.
func goodGroup() *group {
	g := &group{appended: heard{Messages: groupCount, Gap: 41_300 * time.Microsecond, Position: groupCount + 2, Connections: 2, Latency: &latency.Summary{P50: 1_300_000, P99: 9_000_000}}}
	for _, name := range groupNames {
		g.members = append(g.members, &member{name: name, found: heard{Messages: groupCount, Position: groupCount + 2}})
	}
	g.killed, g.next = g.members[0], g.members[1]
	return g
}

// TestGroupProblems: a change of any one number is a problem.
func TestGroupProblems(t *testing.T) {
	if errs := goodGroup().problems(); len(errs) != 0 {
		t.Fatalf("a good group has problems: %v", errs)
	}
	for name, change := range map[string]func(*group){
		"one not acknowledged":    func(g *group) { g.appended.Messages-- },
		"nothing measured":        func(g *group) { g.appended.Gap = 0 },
		"no fail-over":            func(g *group) { g.appended.Connections = 1 },
		"a member lacks one":      func(g *group) { g.members[2].found.Messages-- },
		"a member has one twice":  func(g *group) { g.members[1].found.Messages++ },
		"a member's log is short": func(g *group) { g.members[0].found.Position-- },
	} {
		g := goodGroup()
		change(g)
		if len(g.problems()) == 0 {
			t.Errorf("%s: nobody noticed", name)
		}
	}
}

// TestGroupTable: the table says what each member did, and how long nothing was acknowledged.
func TestGroupTable(t *testing.T) {
	var out bytes.Buffer
	if err := goodGroup().table(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a  led, was killed, came back", "b                   took over", "c                    followed", "took 1300 us (p50), 9000 us (p99)",
		"The longest time without one was 41.3 ms, the fail-over from a to b included", "hence 2 more positions"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, &out)
		}
	}
}
