package sriov

import (
	"encoding/binary"
	"fmt"
	"net"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Switch is a setting that is on, off, or not told by the driver.
type Switch uint8

// The values of a Switch.
const (
	Unknown Switch = iota
	Off
	On
)

// String returns on, off or unknown.
func (s Switch) String() string { return [...]string{Unknown: "unknown", Off: "off", On: "on"}[s] }

// Policy has the settings of a VF at its PF, as ip link show dev PF lists them.
type Policy struct {
	Number   int
	MAC      net.HardwareAddr // all zero: the VF chooses its own
	Trust    Switch           // the PF lets it change what only the administrator of the card may
	Spoof    Switch           // the card drops what it sends with another source address
	VLAN     int              // the card adds this tag to what it sends and removes it from what it receives; 0: none
	QoS      int              // priority of that tag
	Disabled bool             // the PF keeps its link down
	MaxRate  int              // Mbit/s that it may send; 0: no limit
}

// Policies returns the settings of the VFs of an interface; none if it is no PF.
func Policies(index int) ([]Policy, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	info := nl.NewIfInfomsg(unix.AF_UNSPEC)
	info.Index = int32(index)
	request.AddData(info)
	request.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(nl.RTEXT_FILTER_VF)))
	messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if err != nil {
		return nil, fmt.Errorf("ask for the virtual functions of interface %d: %w", index, err)
	}
	var all []Policy
	for _, m := range messages {
		if len(m) < unix.SizeofIfInfomsg {
			return nil, fmt.Errorf("ask for the virtual functions of interface %d: an answer of %d bytes", index, len(m))
		}
		some, err := parse(m[unix.SizeofIfInfomsg:])
		if err != nil {
			return nil, fmt.Errorf("read the virtual functions of interface %d: %w", index, err)
		}
		all = append(all, some...)
	}
	return all, nil
}

// parse reads the attributes of an interface: IFLA_VFINFO_LIST of include/uapi/linux/if_link.h.
func parse(attributes []byte) (all []Policy, err error) {
	of, err := nl.ParseRouteAttr(attributes)
	if err != nil {
		return nil, err
	}
	for _, a := range of {
		if a.Attr.Type&^unix.NLA_F_NESTED != unix.IFLA_VFINFO_LIST {
			continue
		}
		functions, err := nl.ParseRouteAttr(a.Value)
		if err != nil {
			return nil, err
		}
		for _, f := range functions {
			settings, err := nl.ParseRouteAttr(f.Value)
			if err != nil {
				return nil, err
			}
			p := Policy{}
			for _, s := range settings {
				p.read(s.Attr.Type&^unix.NLA_F_NESTED, s.Value)
			}
			all = append(all, p)
		}
	}
	return all, nil
}

// unset is what the kernel sends for a setting that the driver does not tell: rtnl_fill_vfinfo in
// net/core/rtnetlink.c.
const unset = 0xffffffff

// read reads one setting: a structure of 32-bit numbers, of which the first is the VF's. Statistics and lists, which
// it leaves out, have attributes there instead.
func (p *Policy) read(kind uint16, b []byte) {
	word := func(n int) int { return int(binary.NativeEndian.Uint32(b[4*n:])) }
	if len(b) < 8 {
		return
	}
	switch kind {
	case nl.IFLA_VF_MAC, nl.IFLA_VF_VLAN, nl.IFLA_VF_SPOOFCHK, nl.IFLA_VF_TRUST, nl.IFLA_VF_LINK_STATE, nl.IFLA_VF_TX_RATE:
		p.Number = word(0)
	default:
		return
	}
	switch kind {
	case nl.IFLA_VF_MAC:
		if len(b) >= 4+6 {
			p.MAC = net.HardwareAddr(b[4:10:10])
		}
	case nl.IFLA_VF_VLAN:
		if p.VLAN = word(1); len(b) >= 12 {
			p.QoS = word(2)
		}
	case nl.IFLA_VF_SPOOFCHK:
		p.Spoof = switchOf(word(1))
	case nl.IFLA_VF_TRUST:
		p.Trust = switchOf(word(1))
	case nl.IFLA_VF_LINK_STATE:
		p.Disabled = word(1) == nl.IFLA_VF_LINK_STATE_DISABLE
	case nl.IFLA_VF_TX_RATE:
		p.MaxRate = word(1)
	}
}

func switchOf(setting int) Switch {
	switch setting {
	case unset:
		return Unknown
	case 0:
		return Off
	}
	return On
}
