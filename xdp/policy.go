package xdp

import "fmt"

// Policy says which way of getting packets into frames is acceptable.
type Policy uint8

const (
	// Prefer takes zero copy where the driver grants it, else copies.
	Prefer Policy = iota
	// Require takes zero copy or fails.
	Require
	// Copy has the kernel copy, also where the driver could do without.
	Copy
)

var policyNames = [...]string{Prefer: "prefer", Require: "require", Copy: "copy"}

// String is the policy's name as configuration files have it.
func (p Policy) String() string {
	if int(p) >= len(policyNames) {
		return fmt.Sprintf("policy %d", p)
	}
	return policyNames[p]
}

// ParsePolicy is the reverse of String.
func ParsePolicy(s string) (Policy, error) {
	for p, name := range policyNames {
		if s == name {
			return Policy(p), nil
		}
	}
	return 0, fmt.Errorf("zero-copy policy %q: it must be require, prefer or copy", s)
}
