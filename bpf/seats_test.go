package bpf

import (
	"slices"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestSeats: of several selections, the first with a rule that matches decides, and its seat counts the
// packet. The kernel gets packets that no selection matches. The seats' counters continue when Arrange
// changes the order.
func TestSeats(t *testing.T) {
	p := mustLoad(t, Config{Queues: 2})
	web := Seated{7, Selection{Rules: []Rule{
		{Name: "secret", Match: mustParse(t, "port 7001"), Action: Drop},
		{Name: "left", Match: mustParse(t, "port 7002"), Action: Leave},
		{Name: "web", Match: mustParse(t, "port 7003"), Action: Take},
	}}}
	low := Seated{2, Selection{Filter: mustParse(t, "port 7001 or port 7004")}}
	rest := Seated{Seats - 1, Selection{}}
	for _, c := range []struct {
		what    string
		all     []Seated
		port    uint16
		seat    int
		verdict Verdict
	}{
		{"the first takes", []Seated{web, low}, 7003, 7, NoSocket},
		{"the first drops", []Seated{web, low}, 7001, 7, Dropped},
		{"another order", []Seated{low, web}, 7001, 2, NoSocket},
		{"a rule leaves what the next would take", []Seated{web, rest}, 7002, 7, NoMatch},
		{"the second takes", []Seated{web, low}, 7004, 2, NoSocket},
		{"nobody wants it", []Seated{web, low}, 7005, 0, NoMatch},
		{"the last takes everything", []Seated{web, low, rest}, 7005, Seats - 1, NoSocket},
		{"alone, and not in the first seat", []Seated{low}, 7004, 2, NoSocket},
		{"alone in the first", []Seated{{0, Selection{}}}, 7004, 0, NoSocket},
		{"there is none", nil, 7004, 0, NoMatch},
	} {
		testenv.Mustf(t, p.Arrange(c.all), "%s", c.what)
		before := seatCounters(t, p)
		if got := run(t, p, datagram(c.port)); got != c.verdict {
			t.Errorf("%s: %v, want %v", c.what, got, c.verdict)
		}
		for seat, after := range seatCounters(t, p) {
			if grown := after[c.verdict].Packets - before[seat][c.verdict].Packets; (grown == 1) != (seat == c.seat) {
				t.Errorf("%s: seat %d counted %d", c.what, seat, grown)
			}
		}
	}
	testenv.Must(t, p.Arrange([]Seated{low, web}))
	run(t, p, datagram(7003))
	run(t, p, datagram(7003))
	rules, err := p.RuleCountersOf(7)
	if err != nil || len(rules) != 3 || rules[2].Packets != 2 || rules[0].Packets+rules[1].Packets != 0 {
		t.Errorf("%v, %v", rules, err)
	}
	one := Seated{5, Selection{Rules: []Rule{{Name: "rest", Action: Take}}}}
	for range ruleNumbers + 10 { // more new rules than numbers, while other rules stay
		one.Rules = slices.Clone(one.Rules)
		testenv.Must(t, p.Arrange([]Seated{web, one}))
		run(t, p, datagram(7009))
		if rules, err := p.RuleCountersOf(5); err != nil || len(rules) != 1 || rules[0].Packets != 1 {
			t.Fatalf("%v, %v", rules, err)
		}
	}
	if rules, err := p.RuleCountersOf(7); err != nil || rules[2].Packets != 2 {
		t.Errorf("rules that stay were counted anew: %v, %v", rules, err)
	}
	for _, seat := range []int{2, 3} {
		if rules, err := p.RuleCountersOf(seat); err != nil || len(rules) != 0 {
			t.Errorf("seat %d has rules %v, %v", seat, rules, err)
		}
	}
}

func seatCounters(t *testing.T, p *Program) (all [Seats]Counters) {
	t.Helper()
	for seat := range all {
		var err error
		all[seat], err = p.CountersOf(seat)
		testenv.Must(t, err)
	}
	return all
}

// TestSeatsRefused: Arrange changes nothing when it returns an error.
func TestSeatsRefused(t *testing.T) {
	p := mustLoad(t, Config{Queues: 1})
	udp := Selection{Filter: mustParse(t, "udp")}
	for words, all := range map[string][]Seated{
		"seat 16: it must be from 0 to 15":   {{0, udp}, {Seats, udp}},
		"seat 3: it must be":                 {{3, udp}, {3, udp}},
		"decides on every packet":            {{0, udp}, {1, Selection{Own: mustRead(t, "by_port")}}},
		"a filter, rules and a program":      {{0, Selection{Filter: udp.Filter, Own: mustRead(t, "by_port")}}},
		"400 rules: give 64 at most":         {{0, Selection{Rules: make([]Rule, 200)}}, {1, Selection{Rules: make([]Rule, 200)}}},
		"seat -1: it must be from 0 to 15, ": {{-1, udp}},
	} {
		if err := p.Arrange(all); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v", words, err)
		}
	}
	if got := run(t, p, datagram(7003)); got != NoSocket {
		t.Errorf("what is selected has changed: %v", got)
	}
	if err := p.SetSocketOf(Seats, 0, 0); err == nil || !strings.Contains(err.Error(), "no seat 16") {
		t.Error(err)
	}
	if err := p.ClearSocketOf(-1, 0); err == nil {
		t.Error("a seat below the first has sockets")
	}
	if _, err := p.CountersOf(Seats); err == nil {
		t.Error("a seat behind the last counts")
	}
}
