// Package ruledcard gives an interface a card that accepts ethtool's receive rules, for tests on
// machines without such a card.
//
// A [Card] replaces part of the driver. [Card.Start] starts a program. seccomp's user notification passes
// the program's ioctls to this package. It answers those about rules (ETHTOOL_SRXCLSRLINS and similar); the
// kernel answers all others. So the program (ethtool(8) too), the interface and everything else about it
// are real. No packet is steered. It needs root and Linux 5.5.
package ruledcard

import (
	"encoding/binary"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Card is a driver's table of rules. Its settings may change between commands.
type Card struct {
	Room    uint32 // maximum number of rules
	Chooses bool   // the card accepts only rules whose location it may choose
	// Refuse returns the error for a rule, or nil.
	Refuse func(Rule) unix.Errno

	mu    sync.Mutex
	rules map[uint32]Rule
}

// New returns a card without rules.
func New(room uint32) *Card { return &Card{Room: room, rules: map[uint32]Rule{}} }

// Rule is a struct ethtool_rx_flow_spec, as a program gave it.
type Rule [168]byte

const (
	queueAt, locationAt = 152, 160

	special = 1 << 31    // RX_CLS_LOC_SPECIAL
	anyone  = 0xffffffff // RX_CLS_LOC_ANY
)

// FlowType is the type of the rule.
func (r *Rule) FlowType() uint32 { return binary.NativeEndian.Uint32(r[:]) }

// Queue is the queue that the rule steers packets to.
func (r *Rule) Queue() uint64 { return binary.NativeEndian.Uint64(r[queueAt:]) }

func (r *Rule) location() uint32     { return binary.NativeEndian.Uint32(r[locationAt:]) }
func (r *Rule) setLocation(n uint32) { binary.NativeEndian.PutUint32(r[locationAt:], n) }

// Anywhere returns the rule without its location.
func (r Rule) Anywhere() Rule {
	r.setLocation(0)
	return r
}

// Rules returns the card's rules in the order of their locations.
func (c *Card) Rules() (all []Rule) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range c.locations() {
		all = append(all, c.rules[at])
	}
	return all
}

func (c *Card) locations() (all []uint32) {
	for at := range c.rules {
		all = append(all, at)
	}
	slices.Sort(all)
	return all
}

// Count fails the test unless the card has want rules.
func (c *Card) Count(t testing.TB, want int) {
	t.Helper()
	if got := len(c.Rules()); got != want {
		t.Errorf("the card has %d rules, want %d", got, want)
	}
}

// request is a struct ethtool_rxnfc.
type request struct {
	head      [192]byte // up to rule_locs, including padding
	locations []uint32
}

const (
	dataAt, specAt, countAt, listAt = 8, 16, 184, 188
)

func (r *request) rule() (one Rule)    { copy(one[:], r.head[specAt:]); return one }
func (r *request) setRule(one Rule)    { copy(r.head[specAt:countAt], one[:]) }
func (r *request) count() uint32       { return binary.NativeEndian.Uint32(r.head[countAt:]) }
func (r *request) setCount(n uint32)   { binary.NativeEndian.PutUint32(r.head[countAt:], n) }
func (r *request) setData(n uint64)    { binary.NativeEndian.PutUint64(r.head[dataAt:], n) }
func (r *request) command() (n uint32) { return binary.NativeEndian.Uint32(r.head[:]) }

// answer handles a request as a driver would.
func (c *Card) answer(r *request) unix.Errno {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch r.command() {
	case unix.ETHTOOL_GRXRINGS:
		r.setData(4)
	case unix.ETHTOOL_GRXCLSRLCNT:
		r.setCount(uint32(len(c.rules)))
		r.setData(c.data())
	case unix.ETHTOOL_GRXCLSRLALL:
		if int(r.count()) < len(c.rules) {
			return unix.EMSGSIZE
		}
		r.locations = c.locations()
		r.setCount(uint32(len(c.rules)))
		r.setData(c.data())
	case unix.ETHTOOL_GRXCLSRULE:
		asked := r.rule()
		one, ok := c.rules[asked.location()]
		if !ok {
			return unix.ENOENT
		}
		r.setRule(one)
	case unix.ETHTOOL_SRXCLSRLDEL:
		asked := r.rule()
		if _, ok := c.rules[asked.location()]; !ok {
			return unix.ENOENT
		}
		delete(c.rules, asked.location())
	case unix.ETHTOOL_SRXCLSRLINS:
		return c.insert(r)
	}
	return 0
}

func (c *Card) data() uint64 {
	if c.Chooses {
		return uint64(c.Room) | special
	}
	return uint64(c.Room)
}

func (c *Card) insert(r *request) unix.Errno {
	one := r.rule()
	if c.Refuse != nil {
		if errno := c.Refuse(one); errno != 0 {
			return errno
		}
	}
	if c.Chooses {
		if one.location() != anyone {
			return unix.EINVAL
		}
		for at := uint32(0); ; at++ {
			if _, taken := c.rules[at]; !taken {
				one.setLocation(at)
				break
			}
		}
	}
	if one.location() >= c.Room {
		return unix.ENOSPC
	}
	c.rules[one.location()] = one
	r.setRule(one)
	return 0
}
