package wire

import "github.com/unifiedd/unifiedd/rdma"

// PutGRH writes the network header of a received datagram, rdma.GRHBytes: the IPv6 header, or
// twenty zeros and the IPv4 header. frame is the frame that Parse read.
func (e *Envelope) PutGRH(b, frame []byte) {
	b = b[:rdma.GRHBytes]
	if !e.IPv6 {
		clear(b[:ipv4Bytes])
		b = b[ipv4Bytes:]
	}
	copy(b, frame[e.Network:])
}
