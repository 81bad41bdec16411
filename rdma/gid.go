package rdma

import (
	"encoding/hex"
	"fmt"
	"net/netip"
)

// GID is the address of a port. Of RoCE v2 it is an IPv6 address, or an IPv4 one mapped
// into it.
type GID [16]byte

// GIDOf is the GID of an IP address.
func GIDOf(a netip.Addr) GID { return a.As16() }

// Addr is the GID as an IP address, an IPv4 one where it is mapped.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// IsZero reports whether the GID is that of an empty place in a table.
func (g GID) IsZero() bool { return g == GID{} }

// Is4 reports whether it is an IPv4 address.
func (g GID) Is4() bool { return g.Addr().Is4() }

// IsLinkLocal reports whether the address is good on one link only.
func (g GID) IsLinkLocal() bool { return g.Addr().IsLinkLocalUnicast() }

func (g GID) String() string { return g.Addr().String() }

// ParseGID reads an IP address, or 32 hexadecimal digits.
func ParseGID(s string) (g GID, err error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return GIDOf(a), nil
	}
	if b, err := hex.DecodeString(s); err == nil && len(b) == len(g) {
		return GID(b), nil
	}
	return g, fmt.Errorf("GID %q: it must be an IP address or 32 hexadecimal digits", s)
}

// GIDType is what packets with a GID look like: enum ibv_gid_type.
type GIDType uint32

const (
	InfiniBand GIDType = 0
	RoCE1      GIDType = 1 // ethertype 0x8915: one link only
	RoCE2      GIDType = 2 // UDP port 4791
)

func (t GIDType) String() string {
	switch t {
	case InfiniBand:
		return "InfiniBand"
	case RoCE1:
		return "RoCE v1"
	case RoCE2:
		return "RoCE v2"
	}
	return fmt.Sprintf("GID type %d", uint32(t))
}

// GIDEntry is one place of a port's GID table that is in use.
type GIDEntry struct {
	GID   GID
	Index int
	Type  GIDType
	// Interface is the index of the network interface whose address it is; 0: none.
	Interface int
}
