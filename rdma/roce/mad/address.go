package mad

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// Port space, in a service identifier (RDMA_PS_TCP), of services that IP address and port identify,
// as connections are.
const spaceTCP = 0x0106

// ServiceID returns the service ID of a port.
func ServiceID(port uint16) uint64 { return spaceTCP<<16 | uint64(port) }

// PortOf returns the port of a service ID. ok is false for an ID from another port space.
func PortOf(service uint64) (port uint16, ok bool) {
	return uint16(service), service>>16 == spaceTCP
}

// AddressBytes is the number of bytes at the front of a REQ's private data that identify both
// sides. The program's private data follows.
const AddressBytes = 36

// Address has the IP addresses of both sides: struct cma_hdr of the kernel, annex A11. The
// destination port is in the service ID.
type Address struct {
	From netip.AddrPort
	To   netip.Addr
}

// Append appends the encoded address to b. Both IP addresses are IPv4, or both IPv6.
func (a Address) Append(b []byte) []byte {
	version := byte(6)
	if a.From.Addr().Is4() {
		version = 4
	}
	b = append(b, 0, version<<4)
	b = binary.BigEndian.AppendUint16(b, a.From.Port())
	return appendIP(appendIP(b, a.From.Addr()), a.To)
}

// appendIP writes an address into 16 bytes, IPv4 into the last 4 of them.
func appendIP(b []byte, ip netip.Addr) []byte {
	if ip.Is4() {
		b = append(b, make([]byte, 12)...)
	}
	return append(b, ip.AsSlice()...)
}

// DecodeAddress decodes an address. ok is false if there is none, or if its version is unknown.
func DecodeAddress(b []byte) (a Address, ok bool) {
	if len(b) < AddressBytes || b[0] != 0 {
		return a, false
	}
	var from, to netip.Addr
	switch b[1] >> 4 {
	case 4:
		from, to = netip.AddrFrom4([4]byte(b[16:])), netip.AddrFrom4([4]byte(b[32:]))
	case 6:
		from, to = netip.AddrFrom16([16]byte(b[4:])), netip.AddrFrom16([16]byte(b[20:]))
		if from.Is4In6() || to.Is4In6() {
			return a, false
		}
	default:
		return a, false
	}
	return Address{netip.AddrPortFrom(from, be.Uint16(b[2:])), to}, true
}

// Duration returns the time that a code of 5 bits stands for: 4.096 µs << code.
func Duration(code uint8) time.Duration { return 4096 * time.Nanosecond << (code & 31) }

// maxCode is the largest code.
const maxCode = 31

// AckTimeout returns the code of the time to wait for an acknowledgement: twice the lifetime of a
// packet plus the delay of the card that acknowledges. It rounds the sum to powers of two as the
// kernel does (cm_ack_timeout in drivers/infiniband/core/cm.c).
func AckTimeout(delay, lifetime uint8) uint8 {
	twice := lifetime + 1
	sum := max(twice, delay)
	if max(twice, delay)-min(twice, delay) <= 1 {
		sum++
	}
	return min(sum, maxCode)
}
