package rdma

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// ChooseGID picks the place of a port's table to send from. To reach a peer with an IP
// address it takes a RoCE v2 GID of the same family, and one that is not of this link only unless the
// peer's is; IPv4 before IPv6 where the peer does not matter (the zero Addr). On
// InfiniBand it takes the first. The lowest index wins between equals.
func ChooseGID(table []GIDEntry, peer netip.Addr) (GIDEntry, error) {
	fit := slices.DeleteFunc(slices.Clone(table), func(e GIDEntry) bool { return !suits(e, peer.Unmap()) })
	if len(fit) == 0 {
		return GIDEntry{}, noGID(table, peer)
	}
	return slices.MinFunc(fit, func(a, b GIDEntry) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Index, b.Index)) }), nil
}

// suits reports whether packets with the GID can reach the peer.
func suits(e GIDEntry, peer netip.Addr) bool {
	switch {
	case e.Type == InfiniBand:
		return true
	case e.Type != RoCE2:
		return false
	case !peer.IsValid():
		return true
	}
	return e.GID.Is4() == peer.Is4() && e.GID.IsLinkLocal() == peer.IsLinkLocalUnicast()
}

// rank is lower for the better.
func rank(e GIDEntry) int {
	switch {
	case e.GID.IsLinkLocal():
		return 2
	case e.GID.Is4():
		return 0
	}
	return 1
}

func noGID(table []GIDEntry, peer netip.Addr) error {
	if len(table) == 0 {
		return fmt.Errorf("the port has no GID: give its network interface an IP address and set it up")
	}
	family := "IPv6"
	if peer.Unmap().Is4() {
		family = "IPv4"
	}
	if peer.IsValid() {
		return fmt.Errorf("no RoCE v2 GID of the port can reach %v: give its network interface an %s address (it has %v)", peer, family, gids(table))
	}
	return fmt.Errorf("the port has no RoCE v2 GID, only %v", gids(table))
}

func gids(table []GIDEntry) (texts []string) {
	for _, e := range table {
		texts = append(texts, fmt.Sprintf("%v (%v)", e.GID, e.Type))
	}
	return texts
}
