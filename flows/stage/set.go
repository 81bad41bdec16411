package stage

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// Set overwrites fields of a packet's headers. A field with its zero value stays as it is.
type Set struct {
	MACSource, MACDestination net.HardwareAddr // six bytes
	VLAN                      int              // 1 to 4094, of the outermost tag
	IPSource, IPDestination   netip.Addr       // of packets of the same version of IP
	PortSource                int              // 1 to 65535, of TCP and UDP
	PortDestination           int
}

// setter is a compiled Set.
type setter struct {
	link, network, ports bool // groups that have a field to set
	v6                   bool
	macSource            []byte // nil: stays
	macDestination       []byte
	ipSource             []byte // nil: stays; 4 or 16 bytes
	ipDestination        []byte
	vlan                 uint16 // 0: stays
	portSource           uint16 // 0: stays
	portDestination      uint16
}

const (
	maxVLAN = 4094
	maxPort = 65535
)

// compile checks a Set and prepares it.
func (s *Set) compile() (*setter, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	c := &setter{
		macSource: slices.Clone(s.MACSource), macDestination: slices.Clone(s.MACDestination), vlan: uint16(s.VLAN),
		ipSource: bytesOf(s.IPSource), ipDestination: bytesOf(s.IPDestination), v6: s.IPSource.Is6() || s.IPDestination.Is6(),
		portSource: uint16(s.PortSource), portDestination: uint16(s.PortDestination),
	}
	c.link = c.macSource != nil || c.macDestination != nil || c.vlan != 0
	c.network = c.ipSource != nil || c.ipDestination != nil
	c.ports = c.portSource != 0 || c.portDestination != 0
	if !c.link && !c.network && !c.ports {
		return nil, errors.New("set: nothing is set")
	}
	return c, nil
}

func (s *Set) check() error {
	for _, mac := range []net.HardwareAddr{s.MACSource, s.MACDestination} {
		if mac != nil && len(mac) != 6 {
			return fmt.Errorf("set: an Ethernet address has 6 bytes, not %d", len(mac))
		}
	}
	switch {
	case s.VLAN < 0 || s.VLAN > maxVLAN:
		return fmt.Errorf("set: VLAN %d is not from 1 to %d", s.VLAN, maxVLAN)
	case s.PortSource < 0 || s.PortSource > maxPort, s.PortDestination < 0 || s.PortDestination > maxPort:
		return fmt.Errorf("set: ports %d and %d are not both from 1 to %d", s.PortSource, s.PortDestination, maxPort)
	case s.IPSource.Is4In6() || s.IPDestination.Is4In6():
		return errors.New("set: an address of IPv4 is written as one of IPv6: unmap it")
	case s.IPSource.IsValid() && s.IPDestination.IsValid() && s.IPSource.Is4() != s.IPDestination.Is4():
		return fmt.Errorf("set: %s and %s are of different versions of IP: make them two steps", s.IPSource, s.IPDestination)
	}
	return nil
}

func bytesOf(ip netip.Addr) []byte {
	if !ip.IsValid() {
		return nil
	}
	return ip.AsSlice()
}

// apply sets the fields that it can set, and counts.
func (s *setter) apply(p []byte, v *view, n *counters) {
	if r := s.broken(v); r != Changed {
		n.count(r)
		return
	}
	changed := s.setLink(p, v, n)
	changed = s.network && s.setNetwork(p, v, n) || changed
	changed = s.ports && s.setPorts(p, v, n) || changed
	if changed {
		n.count(Changed)
	}
}

// broken returns why no field at all can be set, or Changed.
func (s *setter) broken(v *view) Reason {
	inside := s.network || s.ports
	switch {
	case v.link != Changed:
		return v.link
	case inside && v.network != NotIP && v.network != Changed:
		return v.network
	case inside && v.network == Changed && v.carried != Changed:
		return v.carried
	}
	return Changed
}

// setLink sets Ethernet addresses and the VLAN, and reports whether it set any.
func (s *setter) setLink(p []byte, v *view, n *counters) bool {
	copy(p[:6], s.macDestination)
	copy(p[6:12], s.macSource)
	changed := s.macSource != nil || s.macDestination != nil
	switch {
	case s.vlan == 0:
	case v.tag == 0:
		n.count(Untagged)
	default:
		be.PutUint16(p[v.tag:], be.Uint16(p[v.tag:])&0xf000|s.vlan)
		changed = true
	}
	return changed
}

// setNetwork sets IP addresses, and reports whether it did.
func (s *setter) setNetwork(p []byte, v *view, n *counters) bool {
	switch {
	case v.network != Changed:
		n.count(NotIP)
	case v.v6 != s.v6:
		n.count(OtherVersion)
	case v.sealed:
		n.count(Authenticated)
	case v.routed && s.ipDestination != nil:
		n.count(Routed)
	default:
		s.setAddresses(p, v)
		return true
	}
	return false
}

func (s *setter) setAddresses(p []byte, v *view) {
	header := p[v.ip:]
	source, destination := header[12:16], header[16:20]
	if s.v6 {
		source, destination = header[8:24], header[24:40]
	}
	d := replace(source, s.ipSource) + replace(destination, s.ipDestination)
	if !s.v6 {
		adjust(header[10:], d)
	}
	v.adjust(p, d)
}

// replace overwrites a field and returns the delta. It leaves the field if by is nil.
func replace(field, by []byte) uint32 {
	if by == nil {
		return 0
	}
	d := delta(field, by)
	copy(field, by)
	return d
}

// setPorts sets ports, and reports whether it did.
func (s *setter) setPorts(p []byte, v *view, n *counters) bool {
	switch {
	case v.network != Changed:
		n.count(NotIP)
	case v.sealed:
		n.count(Authenticated)
	case v.proto != protoTCP && v.proto != protoUDP:
		n.count(NoPorts)
	case v.transport == 0:
		n.count(LaterFragment)
	default:
		header := p[v.transport:]
		v.adjust(p, replacePort(header, s.portSource)+replacePort(header[2:], s.portDestination))
		return true
	}
	return false
}

// replacePort overwrites a port and returns the delta. It leaves the port if by is 0.
func replacePort(field []byte, by uint16) uint32 {
	if by == 0 {
		return 0
	}
	old := be.Uint16(field)
	be.PutUint16(field, by)
	return uint32(^old) + uint32(by)
}
