package bpf

import (
	"fmt"

	"github.com/unifiedd/unifiedd/bpf/filter"
)

// MaxRules bounds the rules of a Selection.
const MaxRules = 64

// Selection says which packets are wanted, in one of three ways: an expression, rules, or
// a program of the user's own. The zero value wants every packet.
type Selection struct {
	// Filter accepts the packets that are wanted. Nil accepts all of them.
	Filter *filter.Expr
	// Rules are asked in order, and the first that matches a packet decides. What none
	// matches is left to the kernel. At most [MaxRules].
	Rules []Rule
	// Own is the program that decides.
	Own *Object
}

// Rule decides on some packets, which it counts.
type Rule struct {
	Name   string
	Match  *filter.Expr // nil matches every packet
	Action Action
}

// Action is what becomes of packets.
type Action uint8

// The actions; the numbers are those of enum decision of unifiedd.bpf.c.
const (
	// Leave leaves them to the kernel.
	Leave Action = iota
	// Take hands them to the socket of their queue.
	Take
	// Drop drops them: neither the socket nor the kernel gets them.
	Drop
)

// String is the action's name.
func (a Action) String() string {
	return [...]string{Leave: "leave", Take: "take", Drop: "drop"}[min(a, Drop)]
}

// decisionBits is how far the number of a rule stands above its action.
const decisionBits = 8

// seatShift is how far the seat stands above both.
const seatShift = 16

// check says what is wrong with the selection.
func (s *Selection) check() error {
	ways := 0
	for _, there := range []bool{s.Filter != nil, s.Rules != nil, s.Own != nil} {
		if there {
			ways++
		}
	}
	switch {
	case ways > 1:
		return fmt.Errorf("load XDP program: a filter, rules and a program of the user's own exclude each other: give one of them")
	case len(s.Rules) > MaxRules:
		return fmt.Errorf("load XDP program: %d rules: give %d at most", len(s.Rules), MaxRules)
	}
	for _, r := range s.Rules {
		if r.Action > Drop {
			return fmt.Errorf("load XDP program: rule %s has the action %d: give Leave, Take or Drop", r.Name, r.Action)
		}
	}
	return nil
}

// String is the selection for messages; empty where every packet is wanted.
func (s *Selection) String() string {
	switch {
	case s.Own != nil:
		return s.Own.String()
	case s.Rules != nil:
		return fmt.Sprintf("%d rules", len(s.Rules))
	case s.Filter != nil:
		return s.Filter.String()
	}
	return ""
}
