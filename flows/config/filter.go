package config

import (
	"fmt"
	"strings"
)

// Object is an eBPF program that decides which packets a flow takes.
type Object struct {
	File    string // absolute path of the ELF object; empty: there is none
	Program string // its name
	Digest  string // tells other contents of the file apart, as Options.CheckObject has it
}

// Rule decides on the packets that it matches.
type Rule struct {
	Name   string // unique in its flow
	Match  string // a filter expression; empty, of the last: every packet
	Action Action
	Pos    Pos // where the rule is configured
}

// Action is what a rule does with packets.
type Action string

// The actions.
const (
	ActionTake  Action = "take"  // the flow has them
	ActionLeave Action = "leave" // the host has them
	ActionDrop  Action = "drop"  // nobody has
)

var allActions = []Action{ActionTake, ActionLeave, ActionDrop}

// Wanted is what says which packets the flow takes, for people; empty: it takes all.
func (f *From) Wanted() string {
	switch {
	case f.Object.File != "":
		return "program " + f.Object.Program + " of " + f.Object.File
	case f.Rules != nil:
		all := make([]string, len(f.Rules))
		for i, r := range f.Rules {
			all[i] = r.String()
		}
		return strings.Join(all, "; ")
	}
	return f.Filter
}

// TakesAll reports whether no packet is left to the host: without a filter, or when the last rule
// keeps what no other matches.
func (f *From) TakesAll() bool {
	if n := len(f.Rules); n > 0 {
		return f.Rules[n-1].Match == "" && f.Rules[n-1].Action != ActionLeave
	}
	return f.Wanted() == ""
}

// String is the rule for people.
func (r *Rule) String() string {
	match := r.Match
	if match == "" {
		match = "every packet"
	}
	return fmt.Sprintf("%s: %s %s", r.Name, r.Action, match)
}
