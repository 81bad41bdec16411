package config

import (
	"fmt"
	"strings"
)

// Object is an eBPF program that selects the packets that a flow takes.
type Object struct {
	File    string // absolute path of the ELF object; empty: there is none
	Program string // its name
	Digest  string // digest of the file from Options.CheckObject; changes with the contents
}

// Rule decides on the packets that it matches.
type Rule struct {
	Name   string // unique in its flow
	Match  string // a filter expression; empty (last rule only): every packet
	Action Action
	Pos    Pos // where the rule is configured
}

// Action says what happens to the packets that a rule matches.
type Action string

// The actions.
const (
	ActionTake  Action = "take"  // the flow gets the packet
	ActionLeave Action = "leave" // the host keeps the packet
	ActionDrop  Action = "drop"  // the packet is dropped
)

var allActions = []Action{ActionTake, ActionLeave, ActionDrop}

// Wanted describes the packets that the flow takes, for people. It is empty if the flow takes all
// packets.
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

// TakesAll reports whether the flow leaves no packet to the host: it has no filter, or its last
// rule takes or drops every packet that no other rule matches.
func (f *From) TakesAll() bool {
	if n := len(f.Rules); n > 0 {
		return f.Rules[n-1].Match == "" && f.Rules[n-1].Action != ActionLeave
	}
	return f.Wanted() == ""
}

// String returns the rule as text for people.
func (r *Rule) String() string {
	match := r.Match
	if match == "" {
		match = "every packet"
	}
	return fmt.Sprintf("%s: %s %s", r.Name, r.Action, match)
}
