package xdp

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/unifiedd/unifiedd/bpf/filter"
)

// Types of rules: include/uapi/linux/ethtool.h.
const (
	flowTCP4  = 0x01
	flowUDP4  = 0x02
	flowSCTP4 = 0x03
	flowTCP6  = 0x05
	flowUDP6  = 0x06
	flowSCTP6 = 0x07
	flowIP4   = 0x0d // IPV4_USER_FLOW
	flowIP6   = 0x0e // IPV6_USER_FLOW
	flowEther = 0x12

	flowExt = 1 << 31 // FLOW_EXT: the VLAN is compared
	flowMAC = 1 << 30 // FLOW_MAC_EXT: the destination's Ethernet address is compared
)

// portFlows are the types of rules with ports, by protocol: of IPv4, and of IPv6.
var portFlows = map[uint8][2]uint32{
	filter.ProtoTCP: {flowTCP4, flowTCP6}, filter.ProtoUDP: {flowUDP4, flowUDP6}, filter.ProtoSCTP: {flowSCTP4, flowSCTP6},
}

// ruleOf is the rule that has packets which fit a tuple go to a queue.
func ruleOf(t filter.Tuple, queue uint32) (s ruleSpec, err error) {
	s.Queue = uint64(queue)
	if t.VLAN != 0 {
		s.FlowType |= flowExt
		binary.BigEndian.PutUint16(s.Ext.VLAN[:], t.VLAN)
		s.ExtMask.VLAN = [2]byte{0x0f, 0xff}
	}
	if t.Proto == 0 && !t.Src.IsValid() && !t.Dst.IsValid() {
		s.ether(t)
		return s, nil
	}
	var none [6]byte
	if t.SrcMAC != none {
		return s, fmt.Errorf("the Ethernet address of the source goes into no rule with an IP protocol or address: %s", describeTuple(t))
	}
	if t.DstMAC != none {
		s.FlowType |= flowMAC
		s.Ext.DstMAC, s.ExtMask.DstMAC = t.DstMAC, allOnes
	}
	s.ip(t)
	return s, nil
}

var allOnes = [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// ether has struct ethhdr: destination, source, type.
func (s *ruleSpec) ether(t filter.Tuple) {
	s.FlowType |= flowEther
	var none [6]byte
	if t.DstMAC != none {
		copy(s.Fields[0:], t.DstMAC[:])
		copy(s.Mask[0:], allOnes[:])
	}
	if t.SrcMAC != none {
		copy(s.Fields[6:], t.SrcMAC[:])
		copy(s.Mask[6:], allOnes[:])
	}
	kind := t.EtherType
	switch t.Version {
	case 4:
		kind = 0x0800
	case 6:
		kind = 0x86dd
	}
	s.number(12, kind)
}

// number compares 16 bits.
func (s *ruleSpec) number(at int, n uint16) {
	if n != 0 {
		binary.BigEndian.PutUint16(s.Fields[at:], n)
		s.Mask[at], s.Mask[at+1] = 0xff, 0xff
	}
}

// ip has addresses, then ports or the protocol: struct ethtool_tcpip4_spec, ethtool_usrip4_spec, and those of IPv6.
func (s *ruleSpec) ip(t filter.Tuple) {
	long, which := 4, 0
	if t.Version == 6 {
		long, which = 16, 1
	}
	for i, p := range []netip.Prefix{t.Src, t.Dst} {
		if p.IsValid() {
			copy(s.Fields[i*long:], p.Addr().AsSlice())
			copy(s.Mask[i*long:], net.CIDRMask(p.Bits(), 8*long))
		}
	}
	rest := 2 * long
	if flows, ok := portFlows[t.Proto]; ok {
		s.FlowType |= flows[which]
		s.number(rest, t.SrcPort)
		s.number(rest+2, t.DstPort)
		return
	}
	s.FlowType |= []uint32{flowIP4, flowIP6}[which]
	proto := rest + 5 // behind the first four bytes of the payload and the class of traffic
	if t.Version == 4 {
		s.Fields[proto] = 1 // ETH_RX_NFC_IP4: the version
		proto++
	}
	if t.Proto != 0 {
		s.Fields[proto], s.Mask[proto] = t.Proto, 0xff
	}
}

// describeTuple says for people what a rule compares.
func describeTuple(t filter.Tuple) string {
	var all []string
	add := func(is bool, format string, args ...any) {
		if is {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	var none [6]byte
	add(t.VLAN != 0, "vlan %d", t.VLAN)
	add(t.SrcMAC != none, "ether src %s", net.HardwareAddr(t.SrcMAC[:]))
	add(t.DstMAC != none, "ether dst %s", net.HardwareAddr(t.DstMAC[:]))
	add(t.EtherType != 0, "ether proto 0x%04x", t.EtherType)
	add(t.Version == 4, "ip")
	add(t.Version == 6, "ip6")
	name, known := map[uint8]string{filter.ProtoTCP: "tcp", filter.ProtoUDP: "udp", filter.ProtoSCTP: "sctp"}[t.Proto]
	add(known, "%s", name)
	add(t.Proto != 0 && !known, "proto %d", t.Proto)
	add(t.Src.IsValid(), "src %s", t.Src)
	add(t.Dst.IsValid(), "dst %s", t.Dst)
	add(t.SrcPort != 0, "src port %d", t.SrcPort)
	add(t.DstPort != 0, "dst port %d", t.DstPort)
	return strings.Join(all, " ")
}
