// Package addrlimit bounds what unauthenticated peers hold: in all, and for each network.
//
// At a bound, the owner of a Set removes something older, so that a new peer always gets a place.
// [Set.Full] returns the candidates.
//
// A Set belongs to one goroutine at a time.
package addrlimit

import (
	"net/netip"
	"slices"
)

// Limit says which bound was reached.
type Limit uint8

const (
	None    Limit = iota
	Network       // of things of one network
	All           // of things of all networks
)

// Set is a set of things that peers hold.
type Set[T comparable] struct {
	most, each int
	things     []thing[T] // the oldest first
	from       map[netip.Prefix]int
}

type thing[T comparable] struct {
	it      T
	network netip.Prefix
}

// New returns an empty set for at most most things in all, and at most each things of one network.
func New[T comparable](most, each int) *Set[T] {
	return &Set[T]{most: most, each: each, from: map[netip.Prefix]int{}}
}

// Len is how many things are in the set.
func (s *Set[T]) Len() int { return len(s.things) }

// From is how many things of a network are in the set.
func (s *Set[T]) From(network netip.Prefix) int { return s.from[network] }

// Full returns the limit that one more thing of a network would exceed, and the candidates for
// removal, oldest first: those of the same network, or those of the network that has the most.
func (s *Set[T]) Full(network netip.Prefix) (Limit, []T) {
	switch {
	case s.from[network] >= s.each:
		return Network, s.of(network)
	case len(s.things) >= s.most:
		return All, s.of(s.busiest())
	}
	return None, nil
}

// busiest is the network with the most things; of several, that of the oldest thing.
func (s *Set[T]) busiest() (network netip.Prefix) {
	for _, t := range s.things {
		if s.from[t.network] > s.from[network] {
			network = t.network
		}
	}
	return network
}

func (s *Set[T]) of(network netip.Prefix) (all []T) {
	for _, t := range s.things {
		if t.network == network {
			all = append(all, t.it)
		}
	}
	return all
}

// Add adds a thing, whatever the limits.
func (s *Set[T]) Add(it T, network netip.Prefix) {
	s.things = append(s.things, thing[T]{it, network})
	s.from[network]++
}

// Busiest returns the things of the network that has the most, oldest first. The owner of the set removes one
// of them when another resource is short.
func (s *Set[T]) Busiest() []T { return s.of(s.busiest()) }

// Has reports whether a thing is in the set.
func (s *Set[T]) Has(it T) bool {
	return slices.ContainsFunc(s.things, func(t thing[T]) bool { return t.it == it })
}

// Remove removes a thing, and reports whether it was in the set.
func (s *Set[T]) Remove(it T) bool {
	at := slices.IndexFunc(s.things, func(t thing[T]) bool { return t.it == it })
	if at < 0 {
		return false
	}
	network := s.things[at].network
	s.things = slices.Delete(s.things, at, at+1)
	if s.from[network]--; s.from[network] == 0 {
		delete(s.from, network)
	}
	return true
}

// Host returns the network that stands for one host: the IPv4 address, or the IPv6 network of 64 bits, all of
// whose addresses one host may have. For a link-local address it is the address itself, since all link-local
// addresses form one network on every link.
func Host(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := a.BitLen()
	if a.Is6() && !a.IsLinkLocalUnicast() {
		bits = 64
	}
	return prefix(a, bits)
}

// Link returns the network that stands for the neighbours of a host: 24 bits of IPv4, 64 of IPv6.
func Link(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	if a.Is4() {
		return prefix(a, 24)
	}
	return prefix(a, 64)
}

// prefix returns a prefix that is not valid if the address is not.
func prefix(a netip.Addr, bits int) netip.Prefix {
	p, _ := a.Prefix(bits)
	return p
}
