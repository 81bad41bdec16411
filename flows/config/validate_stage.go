package config

import (
	"errors"
	"fmt"
	"math/bits"
	"net"
)

// Bounds of stages: a UDP payload has 65507 bytes at most.
const (
	maxStages  = 16
	stampBytes = 8 // of a sequence number or a timestamp
	maxUDP     = 65507
	maxOffset  = maxUDP - stampBytes
	maxVLAN    = 4094
	maxPort    = 65535
)

func (v *validator) stages(path string, f *Flow) {
	if v.explained(path) {
		return
	}
	v.check(len(f.Stages) <= maxStages, path, "%d stages are too many; at most %d are possible", len(f.Stages), maxStages)
	var stamps []stamp
	for i := range f.Stages[:min(len(f.Stages), maxStages)] {
		s, at := &f.Stages[i], index(path, i)
		v.stage(at, s)
		stamps = v.stamps(stamps, at, s)
		switch kind := f.Kind(); {
		case s.Mold != nil:
			v.feed(join(at, "moldudp64"), s.Mold, f)
		case s.Counter != nil:
			v.feed(join(at, "counter"), s.Counter, f)
		case (kind == KindNetworkAttach || kind == KindNetworkStorage || kind == KindNetworkOrder) && !v.explained(at):
			v.refuse(at, wrong("say moldudp64 or counter, or send the packets to RDMA peers", "changes packets, and a flow to an attached program, storage or an exchange does not"))
		}
		if s.Sum == nil {
			continue
		}
		v.sum(join(at, "sum"), s.Sum, f)
		v.check(len(f.Stages) == 1, join(at, "sum"), "is possible only alone: the other stages are for packets, and there is one sum")
	}
}

// stage checks that a stage has one operation, and checks its settings.
func (v *validator) stage(path string, s *Stage) {
	v.one(path, s)
	switch {
	case s.Set != nil:
		v.set(join(path, "set"), s.Set)
	case s.Sequence != nil:
		v.offset(join(path, "sequence.offset"), s.Sequence.Offset)
	case s.Timestamp != nil:
		v.offset(join(path, "timestamp.offset"), s.Timestamp.Offset)
	}
}

// one checks that a stage has exactly one operation.
func (v *validator) one(path string, s *Stage) {
	there := []bool{s.Set != nil, s.Sequence != nil, s.Timestamp != nil, s.Sum != nil, s.Mold != nil, s.Counter != nil}
	n := 0
	for i, key := range []string{"set", "sequence", "timestamp", "sum", "moldudp64", "counter"} {
		if there[i] || v.settled[join(path, key)] {
			n++
		}
	}
	v.check(n > 0, path, "set, sequence, timestamp, sum, moldudp64 or counter is needed")
	v.check(n < 2, path, "only one of set, sequence, timestamp, sum, moldudp64 and counter is possible: make each a stage")
}

func (v *validator) offset(path string, offset int) {
	v.check(within(offset, 0, maxOffset), path, "%d is not from 0 to %d", offset, maxOffset)
}

// sum checks the sum of messages. Messages must be whole elements.
func (v *validator) sum(path string, s *Sum, f *Flow) {
	if f.Kind() != KindRDMARDMA {
		v.refuse(path, wrong("remove it", "has a meaning only for %s", aboutMessages))
		return
	}
	if v.need(join(path, "type"), string(s.Type), "the type of the elements") {
		v.checkErr(join(path, "type"), member(s.Type, allSumTypes))
		v.parts(path, &f.From)
	}
}

// stamp is a place in the payload where a stage writes a number.
type stamp struct {
	path   string
	offset int
}

// stamps adds the bytes that the stage writes, and refuses an overlap with another stage.
func (v *validator) stamps(all []stamp, path string, s *Stage) []stamp {
	switch {
	case s.Sequence != nil:
		path, all = join(path, "sequence.offset"), append(all, stamp{path, s.Sequence.Offset})
	case s.Timestamp != nil:
		path, all = join(path, "timestamp.offset"), append(all, stamp{path, s.Timestamp.Offset})
	default:
		return all
	}
	last := all[len(all)-1]
	for _, a := range all[:len(all)-1] {
		if last.offset < a.offset+stampBytes && a.offset < last.offset+stampBytes {
			v.refuse(path, fmt.Errorf("the %d bytes at %d overlap those at %d of %s", stampBytes, last.offset, a.offset, a.path))
			break
		}
	}
	return all
}

// set checks the fields to overwrite.
func (v *validator) set(path string, s *Set) {
	v.mac(join(path, "mac_source"), s.MACSource, true)
	v.mac(join(path, "mac_destination"), s.MACDestination, false)
	v.number(join(path, "vlan"), s.VLAN, maxVLAN)
	v.number(join(path, "port_source"), s.PortSource, maxPort)
	v.number(join(path, "port_destination"), s.PortDestination, maxPort)
	v.addresses(path, s)
	if s.empty() && !v.any(path, "mac_source", "mac_destination", "vlan", "ip_source", "ip_destination", "port_source", "port_destination") {
		v.refuse(path, errors.New("nothing is set"))
	}
}

// empty reports whether the set changes nothing.
func (s *Set) empty() bool {
	return s.MACSource == nil && s.MACDestination == nil && s.VLAN == 0 && !s.IPSource.IsValid() &&
		!s.IPDestination.IsValid() && s.PortSource == 0 && s.PortDestination == 0
}

// any reports whether the file has one of these keys, perhaps misspelt.
func (v *validator) any(path string, keys ...string) bool {
	for _, key := range keys {
		if at := join(path, key); v.given(at, "") || v.settled[at] {
			return true
		}
	}
	return false
}

// mac checks an Ethernet address. A source must not be a group address.
func (v *validator) mac(path string, mac net.HardwareAddr, source bool) {
	if mac == nil {
		return
	}
	v.check(len(mac) == 6, path, "an Ethernet address has 6 bytes, not %d", len(mac))
	v.check(!source || len(mac) == 0 || mac[0]&1 == 0, path, "%s is a group's address and cannot be a source", mac)
}

// number checks a number that the file has.
func (v *validator) number(path string, n, last int) {
	if n != 0 || v.given(path, "") {
		v.check(within(n, 1, last), path, "%d is not from 1 to %d", n, last)
	}
}

// addresses checks that both addresses have the same IP version.
func (v *validator) addresses(path string, s *Set) {
	from, to := join(path, "ip_source"), join(path, "ip_destination")
	v.check(!s.IPSource.IsMulticast(), from, "%s is a group's address and cannot be a source", s.IPSource)
	v.check(!s.IPSource.Is4In6(), from, "%s is an address of IPv4 written as one of IPv6", s.IPSource)
	v.check(!s.IPDestination.Is4In6(), to, "%s is an address of IPv4 written as one of IPv6", s.IPDestination)
	if s.IPSource.IsValid() && s.IPDestination.IsValid() && s.IPSource.Is4() != s.IPDestination.Is4() {
		v.refuse(v.first(to, from), wrong("make them two stages", "%s and %s are of different versions of IP", s.IPSource, s.IPDestination))
	}
}

// maxParts is the largest number of unacknowledged parts of sums: the windows of all clients, each
// the next larger power of two.
const maxParts = 1 << 20

// parts checks that the memory for parts without acknowledgement stays small.
func (v *validator) parts(path string, from *From) {
	if n := from.Clients << bits.Len(uint(max(0, from.Window))); n > maxParts {
		v.refuse(path, wrong("lower from.clients or from.window", "a sum of %d clients with windows of %d has %d parts under way; %d are possible", from.Clients, from.Window, n, maxParts))
	}
}
