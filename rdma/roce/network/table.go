package network

import (
	"slices"

	"github.com/unifiedd/unifiedd/rdma"
)

// MaxGIDs is how many places a table has: what an address's GIDIndex can name. Addresses beyond wait for a hole.
const MaxGIDs = 256

// table is a table of GIDs. A hole is the zero address.
type table []address

// update has the table hold what is there: an address that was there keeps its place.
func (t *table) update(now []address) {
	for i, a := range *t {
		if !slices.Contains(now, a) {
			(*t)[i] = address{}
		}
	}
	for _, a := range now {
		if !slices.Contains(*t, a) {
			t.add(a)
		}
	}
}

// add puts an address into the first hole, or behind the last.
func (t *table) add(a address) {
	if i := slices.Index(*t, address{}); i >= 0 {
		(*t)[i] = a
	} else if len(*t) < MaxGIDs {
		*t = append(*t, a)
	}
}

// entries are the places in use.
func (t table) entries() []rdma.GIDEntry {
	all := make([]rdma.GIDEntry, 0, len(t))
	for i, a := range t {
		if a != (address{}) {
			all = append(all, a.entry(i))
		}
	}
	return all
}

// entry is the address at a place.
func (a address) entry(place int) rdma.GIDEntry {
	return rdma.GIDEntry{GID: a.gid, Index: place, Type: rdma.RoCE2, Interface: a.link}
}

// at is the address at a place; ok is false of a hole, and of what is no place.
func (t table) at(place int) (a address, ok bool) {
	if place < 0 || place >= len(t) || t[place] == (address{}) {
		return address{}, false
	}
	return t[place], true
}

// has reports whether an address is that of any of the links.
func (t table) has(g rdma.GID) bool {
	return slices.ContainsFunc(t, func(a address) bool { return a.link != 0 && a.gid == g })
}
