package bpf

import (
	"fmt"
	"slices"
)

// Seats is how many selections one program may serve.
const Seats = 16

// Slotted is a selection with a seat: a number from 0 to [Seats]-1 under which the program has sockets
// and counters for who wants these packets.
type Slotted struct {
	Seat int
	Selection
}

// table is what a program decides by: selections in the order in which they are asked.
type table struct {
	Selection       // of the only one, or the rules of all
	seats     []int // of each rule; nil: the first seat
	numbers   []int // of each rule, under which it is counted; 0: it is not
	all       []Slotted
}

// oneTable is that of a selection with a program for itself.
func oneTable(s Selection) table { return table{Selection: s, all: []Slotted{{Selection: s}}} }

// newTable puts selections behind each other: the first rule of all that matches a packet decides, and a
// filter is a rule that takes.
func newTable(all []Slotted) (table, error) {
	if len(all) == 1 && all[0].Seat == 0 {
		return oneTable(all[0].Selection), nil
	}
	t := table{all: all}
	t.Rules = []Rule{}
	var taken [Seats]bool
	for _, one := range all {
		switch {
		case one.Seat < 0 || one.Seat >= Seats || taken[one.Seat]:
			return t, fmt.Errorf("load XDP program: seat %d: it must be from 0 to %d, and one for each", one.Seat, Seats-1)
		case one.Own != nil:
			return t, fmt.Errorf("load XDP program: %s decides on every packet: who has it cannot share an interface", one.Own)
		}
		taken[one.Seat] = true
		for _, r := range one.asRules() {
			t.Rules, t.seats = append(t.Rules, r), append(t.seats, one.Seat)
		}
	}
	return t, nil
}

// asRules is the selection as rules.
func (s *Selection) asRules() []Rule {
	if s.Rules != nil {
		return s.Rules
	}
	return []Rule{{Name: "filter", Match: s.Filter, Action: Take}}
}

// seat is that of a rule.
func (t *table) seat(rule int) int {
	if t.seats == nil {
		return 0
	}
	return t.seats[rule]
}

// rulesOf are the rules that a seat was given, and their numbers.
func (t *table) rulesOf(seat int) (rules []Rule, numbers []int) {
	first := 0
	for _, one := range t.all {
		if one.Seat == seat {
			return one.Rules, t.numbers[first:][:len(one.Rules)]
		}
		first += len(one.asRules())
	}
	return nil, nil
}

// ruleNumbers is how many numbers there are for rules, with 0: as RULE_BITS of unifiedd.bpf.c say.
const ruleNumbers = 256

// number gives the rules numbers: those that stay, which are the same slice, the ones they had, others such as none had, since packets
// may still meet the old table. It returns the latter.
func (t *table) number(old *table) (fresh []int) {
	var taken [ruleNumbers]bool
	taken[0] = true
	for _, n := range old.numbers {
		taken[n] = true
	}
	for _, one := range t.all {
		rules, numbers := old.rulesOf(one.Seat)
		if len(rules) > 0 && len(rules) == len(one.Rules) && &rules[0] == &one.Rules[0] {
			t.numbers = append(t.numbers, numbers...)
			continue
		}
		for range one.Rules {
			n := slices.Index(taken[:], false)
			taken[n] = true
			fresh, t.numbers = append(fresh, n), append(t.numbers, n)
		}
		if one.Rules == nil {
			t.numbers = append(t.numbers, 0)
		}
	}
	return fresh
}

// clearRules has rules of these numbers counted from nothing.
func (p *Program) clearRules(numbers []int) error {
	nothing := make([]captureCounter, len(p.buffer))
	for _, n := range numbers {
		if err := p.maps.rules.Put(uint32(n), nothing); err != nil {
			return fmt.Errorf("clear the counter of a rule: %w", err)
		}
	}
	return nil
}

// Arrange exchanges all selections for others, asked in this order: the first rule that matches a packet
// decides for whom it is, and what none matches is left to the kernel. It is Select otherwise. A program of the user's own is
// for one selection alone.
func (p *Program) Arrange(all []Slotted) error {
	t, err := newTable(all)
	if err != nil {
		return err
	}
	return p.change(t)
}

// CountersOf are those of one seat: what was decided for it.
func (p *Program) CountersOf(seat int) (c Counters, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.program == nil {
		return c, fmt.Errorf("read counters: %w", ErrClosed)
	}
	return p.count(seat)
}

// count reads the counters of a seat; p.mu is held.
func (p *Program) count(seat int) (c Counters, err error) {
	if seat < 0 || seat >= Seats {
		return c, fmt.Errorf("read counters: there is no seat %d", seat)
	}
	for v := range c {
		if c[v], err = p.sum(p.maps.counters, uint32(seat*Verdicts+v)); err != nil {
			return Counters{}, fmt.Errorf("read the counter of %s packets: %w", Verdict(v), err)
		}
	}
	return c, nil
}
