package config

import (
	"fmt"
	"strings"
	"testing"
)

// TestCrowded: the validator refuses more flows or rules than one XDP program supports, at the flow
// that exceeds the limit.
func TestCrowded(t *testing.T) {
	text := func(rules ...int) string {
		var b strings.Builder
		b.WriteString("region: {size: 256MiB, extents: 64}\nworkers: [{name: w}]\nflows:\n")
		for i, n := range rules {
			filter := "udp"
			if n > 1 {
				all := make([]string, n)
				for k := range all {
					all[k] = fmt.Sprintf("{name: r%d, match: tcp, action: take}", k)
				}
				filter = "[" + strings.Join(all, ", ") + "]"
			}
			fmt.Fprintf(&b, "- {name: f%d, worker: w, from: {interface: eth1, filter: %s}, to: {file: /captures/f%[1]d}}\n", i, filter)
		}
		return b.String()
	}
	many := make([]int, maxBeside)
	for _, fine := range [][]int{many, {maxRules}, {maxRules - 1, 1}, {30, 30, 1, 3}} {
		if _, err := Parse("fine.yaml", []byte(text(fine...)), Options{}); err != nil {
			t.Errorf("%v: %v", fine, err)
		}
	}
	for _, c := range []struct {
		rules []int
		want  string
	}{
		{append(many, 1), `flows[16].from: is number 17 of the flows that take packets from "eth1"; at most 16 are possible`},
		{[]int{maxRules, 1}, `flows[1].from: makes it 65 rules for interface "eth1", an expression counting as one; at most 64 are possible`},
		{[]int{30, 30, 5}, `flows[2].from: makes it 65 rules for interface "eth1"`},
	} {
		if _, err := Parse("crowded.yaml", []byte(text(c.rules...)), Options{}); err == nil || !strings.Contains(err.Error(), c.want) || strings.Count(err.Error(), "at most") != 1 {
			t.Errorf("%v: %v, want %s", c.rules, err, c.want)
		}
	}
}
