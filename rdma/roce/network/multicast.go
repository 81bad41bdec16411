package network

import (
	"fmt"

	"github.com/unifiedd/unifiedd/rdma"
)

// GroupMAC is the Ethernet address of a group: RFC 1112, section 6.4, and RFC 2464, section 7.
func GroupMAC(group rdma.GID) (MAC, error) {
	a := group.Addr()
	switch {
	case !a.IsMulticast():
		return MAC{}, fmt.Errorf("%v is no group: those are 224.0.0.0/4 and ff00::/8", a)
	case a.Is4():
		return MAC{0x01, 0x00, 0x5e, group[13] & 0x7f, group[14], group[15]}, nil
	}
	return MAC{0x33, 0x33, group[12], group[13], group[14], group[15]}, nil
}
