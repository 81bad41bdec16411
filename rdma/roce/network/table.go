package network

import (
	"slices"

	"github.com/unifiedd/unifiedd/rdma"
)

// MaxGIDs is the number of entries of a table. Further addresses wait for a free entry. Cards have up to 256, as many as the
// verbs API can name; hosts of many addresses have more on one interface.
const MaxGIDs = 1024

// table is a table of GIDs. The zero address marks a free entry.
type table []address

// update makes the table equal to the present addresses. An address that was there keeps its index.
func (t *table) update(now []address) {
	missing := make(map[address]bool, len(now))
	for _, a := range now {
		missing[a] = true
	}
	for i, a := range *t {
		if !missing[a] {
			(*t)[i] = address{}
		}
		delete(missing, a)
	}
	for _, a := range now {
		if missing[a] {
			t.add(a)
		}
	}
}

// add puts an address into the first free entry, or appends it.
func (t *table) add(a address) {
	if i := slices.Index(*t, address{}); i >= 0 {
		(*t)[i] = a
	} else if len(*t) < MaxGIDs {
		*t = append(*t, a)
	}
}

// entries returns the entries in use.
func (t table) entries() []rdma.GIDEntry {
	all := make([]rdma.GIDEntry, 0, len(t))
	for i, a := range t {
		if a != (address{}) {
			all = append(all, a.entry(i))
		}
	}
	return all
}

// entry returns the entry for an address at an index.
func (a address) entry(place int) rdma.GIDEntry {
	return rdma.GIDEntry{GID: a.gid, Index: place, Type: rdma.RoCE2, Interface: a.link}
}

// at returns the address at an index; ok is false if the entry is free or the index is out of
// range.
func (t table) at(place int) (a address, ok bool) {
	if place < 0 || place >= len(t) || t[place] == (address{}) {
		return address{}, false
	}
	return t[place], true
}

// has reports whether one of the links has an address.
func (t table) has(g rdma.GID) bool {
	return slices.ContainsFunc(t, func(a address) bool { return a.link != 0 && a.gid == g })
}
