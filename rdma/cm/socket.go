package cm

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// socketOf returns an address in the kernel's form, and its length. The zero AddrPort has length 0.
func socketOf(a netip.AddrPort) (s socket, size uint16, err error) {
	binary.BigEndian.PutUint16(s.port[:], a.Port())
	addr := a.Addr().Unmap()
	switch {
	case !addr.IsValid():
		return socket{}, 0, nil
	case addr.Is4():
		s.family = unix.AF_INET
		copy(s.rest[:], addr.AsSlice())
		return s, unix.SizeofSockaddrInet4, nil
	}
	s.family = unix.AF_INET6
	copy(s.rest[4:], addr.AsSlice()) // after the flow label
	scope, err := zone(addr)
	binary.NativeEndian.PutUint32(s.rest[20:], scope)
	return s, unix.SizeofSockaddrInet6, err
}

// zone returns the index of the interface of a link-local address.
func zone(a netip.Addr) (uint32, error) {
	if a.Zone() == "" {
		return 0, nil
	}
	if n, err := strconv.ParseUint(a.Zone(), 10, 32); err == nil {
		return uint32(n), nil
	}
	i, err := net.InterfaceByName(a.Zone())
	if err != nil {
		return 0, fmt.Errorf("address %v: there is no interface %s", a, a.Zone())
	}
	return uint32(i.Index), nil
}

// addrPort is the inverse of socketOf. For anything but IPv4 and IPv6 it returns the zero AddrPort.
func (s *socket) addrPort() netip.AddrPort {
	port := binary.BigEndian.Uint16(s.port[:])
	switch s.family {
	case unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(s.rest[:4])), port)
	case unix.AF_INET6:
		a := netip.AddrFrom16([16]byte(s.rest[4:20]))
		if scope := binary.NativeEndian.Uint32(s.rest[20:]); scope != 0 && a.IsLinkLocalUnicast() {
			a = a.WithZone(strconv.FormatUint(uint64(scope), 10))
		}
		return netip.AddrPortFrom(a, port)
	}
	return netip.AddrPort{}
}
