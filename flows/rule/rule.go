package rule

import (
	"encoding/binary"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/counter"
)

// Outcome is what a message is for the rules. It is an index, and a word in metrics.
type Outcome uint8

// The outcomes.
const (
	Matched   Outcome = iota // a rule makes an order of it
	Unmatched                // it is for no rule
	Short                    // it ends before bytes that a rule needs

	Outcomes // how many there are
)

var outcomes = [Outcomes]string{"matched", "unmatched", "short"}

func (o Outcome) String() string { return outcomes[o] }

// Set has the rules of a flow.
type Set struct {
	rules   []rule
	counter uint64 // in the next order
	count   [Outcomes]counter.Counter
}

// rule is one rule.
type rule struct {
	name       string
	conditions []condition
	order      []byte // as it is, but for the fields
	fields     []field
	reach      int // bytes that a message needs for the fields
	matched    counter.Counter
	left       counter.Counter
}

// New makes a set of rules whose counter begins with a number. The rules are as the configuration has checked them.
func New(rules []config.OrderRule, first uint64) *Set {
	s := &Set{rules: make([]rule, len(rules)), counter: first}
	for i := range rules {
		from, to := &rules[i], &s.rules[i]
		to.name = from.Name
		for n := range from.When {
			to.conditions = append(to.conditions, newCondition(&from.When[n]))
		}
		for n := range from.Order {
			to.add(&from.Order[n])
		}
	}
	return s
}

// Match finds the rule that makes an order of a message, and counts the message. The number of the rule counts only if it
// is Matched.
func (s *Set) Match(message []byte) (number int, o Outcome) {
	number, o = s.Find(message)
	s.count[o].Add(1)
	if o == Matched {
		s.rules[number].matched.Add(1)
	}
	return number, o
}

// Find is Match that counts nothing.
func (s *Set) Find(message []byte) (number int, o Outcome) {
	o = Unmatched
	for i := range s.rules {
		switch s.rules[i].match(message) {
		case Matched:
			return i, Matched
		case Short:
			o = Short
		}
	}
	return 0, o
}

// match checks the conditions in their order. The first that is not met decides.
func (r *rule) match(m []byte) Outcome {
	for i := range r.conditions {
		if o := r.conditions[i].check(m); o != Matched {
			return o
		}
	}
	if len(m) < r.reach {
		return Short
	}
	return Matched
}

// Len returns the length of a rule's orders in bytes.
func (s *Set) Len(number int) int { return len(s.rules[number].order) }

// Fill writes the order of a rule for a message that it matches. to has Len bytes.
func (s *Set) Fill(number int, to, message []byte) {
	r := &s.rules[number]
	copy(to, r.order)
	for i := range r.fields {
		r.fields[i].fill(to, message, s.counter)
	}
}

// Left says that the order that Fill has written last has left. The next one has the next number.
func (s *Set) Left(number int) {
	s.rules[number].left.Add(1)
	s.counter++
}

// Stats is what has become of messages so far.
type Stats struct {
	Messages [Outcomes]uint64
	Rules    []RuleStats
}

// RuleStats is about one rule.
type RuleStats struct {
	Name          string
	Matched, Left uint64 // messages, and orders that have left
}

// Stats returns the counters. Any goroutine may call it.
func (s *Set) Stats() (t Stats) {
	for i := range s.rules { // an order that has left has been matched before
		r := &s.rules[i]
		left := r.left.Load()
		t.Rules = append(t.Rules, RuleStats{Name: r.name, Left: left, Matched: r.matched.Load()})
	}
	for i := range s.count {
		t.Messages[i] = s.count[i].Load()
	}
	return t
}

// condition is about the bytes from at to end.
type condition struct {
	at, end    int
	want, mask []byte // of bytes; nil: it is about a number
	little     bool
	min, max   uint64
}

func newCondition(c *config.Condition) condition {
	want := []byte(c.Hex)
	if c.Is != "" {
		want = []byte(c.Is)
	}
	if len(want) == 0 {
		return condition{at: c.At, end: c.At + c.Bits/8, little: c.Order == config.LittleEndian, min: c.Min, max: c.Max}
	}
	mask := []byte(c.Mask)
	for len(mask) < len(want) {
		mask = append(mask, 0xff)
	}
	return condition{at: c.At, end: c.At + len(want), want: want, mask: mask}
}

// check says whether a message meets the condition.
func (c *condition) check(m []byte) Outcome {
	if c.end > len(m) {
		return Short
	}
	b := m[c.at:c.end]
	if c.want == nil {
		if v := number(b, c.little); v < c.min || v > c.max {
			return Unmatched
		}
		return Matched
	}
	for i := range b {
		if b[i]&c.mask[i] != c.want[i] {
			return Unmatched
		}
	}
	return Matched
}

// number reads an unsigned number of 1, 2, 4 or 8 bytes.
func number(b []byte, little bool) uint64 {
	switch {
	case len(b) == 8 && little:
		return binary.LittleEndian.Uint64(b)
	case len(b) == 8:
		return binary.BigEndian.Uint64(b)
	case len(b) == 4 && little:
		return uint64(binary.LittleEndian.Uint32(b))
	case len(b) == 4:
		return uint64(binary.BigEndian.Uint32(b))
	case len(b) == 2 && little:
		return uint64(binary.LittleEndian.Uint16(b))
	case len(b) == 2:
		return uint64(binary.BigEndian.Uint16(b))
	}
	return uint64(b[0])
}
