package rdma

import "fmt"

// MTU is the payload of one packet, as enum ibv_mtu numbers it.
type MTU uint32

const (
	MTU256  MTU = 1
	MTU512  MTU = 2
	MTU1024 MTU = 3
	MTU2048 MTU = 4
	MTU4096 MTU = 5
)

// Bytes is the payload in bytes, 0 of a number that is none of the five.
func (m MTU) Bytes() int {
	if m < MTU256 || m > MTU4096 {
		return 0
	}
	return 128 << m
}

func (m MTU) String() string { return fmt.Sprint(m.Bytes()) }

// ParseMTU is the MTU of that many bytes.
func ParseMTU(bytes int) (MTU, error) {
	for m := MTU256; m <= MTU4096; m++ {
		if m.Bytes() == bytes {
			return m, nil
		}
	}
	return 0, fmt.Errorf("path MTU %d: it must be 256, 512, 1024, 2048 or 4096", bytes)
}

// overhead is what RoCE v2 over IPv6 adds to a packet behind Ethernet's header: IPv6 (40),
// UDP (8), base transport header (12), the largest extended headers (28), ICRC (4), less
// what Soft-RoCE does not reckon with. drivers/infiniband/sw/rxe/rxe_param.h has 80.
const overhead = 80

// FitsInterface is the largest MTU that goes through a network interface with this MTU,
// and 0 where none does.
func FitsInterface(mtu int) MTU {
	for m := MTU4096; m >= MTU256; m-- {
		if m.Bytes()+overhead <= mtu {
			return m
		}
	}
	return 0
}
