package bpf

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
)

// Small pools, so that random packets and random filters meet.
var (
	pool4     = []string{"10.0.0.1", "10.0.0.2", "10.0.1.1", "192.168.1.1", "224.0.0.5", "255.255.255.255", "0.0.0.0"}
	pool6     = []string{"2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "fe80::1", "ff02::1", "::"}
	poolPort  = []uint16{22, 53, 80, 443, 6000, 6050, 6100, 65535, 0}
	poolProto = []byte{1, 2, 6, 17, 50, 58, 132}
	poolMAC   = []string{"\x02\x00\x00\x00\x00\x01", "\x02\x00\x00\x00\x00\x02", "\x01\x00\x5e\x00\x00\x05", "\xff\xff\xff\xff\xff\xff"}
	poolTag   = []uint16{0, 5, 6, 4095}
)

func pick[T any](r *rand.Rand, pool []T) T { return pool[r.IntN(len(pool))] }

// join puts the parts of a packet one behind the other.
func join(parts ...[]byte) []byte {
	var all []byte
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func be16(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }

// ethernet begins a packet; tags are pairs of a type and a number.
func ethernet(dst, src string, tags [][2]uint16, ethertype uint16, payload []byte) []byte {
	p := []byte(dst + src)
	for _, t := range tags {
		p = join(p, be16(t[0]), be16(t[1]|0x2000)) // with a priority, which is no part of the number
	}
	return join(p, be16(ethertype), payload)
}

// ipv4 is a header with words of options, flags and offset, and a payload.
func ipv4(src, dst string, proto byte, options int, fragment uint16, payload []byte) []byte {
	h := make([]byte, 20+4*options)
	h[0] = 0x40 | byte(5+options)
	binary.BigEndian.PutUint16(h[2:], uint16(len(h)+len(payload)))
	binary.BigEndian.PutUint16(h[6:], fragment)
	h[8], h[9] = 64, proto
	copy(h[12:], netip.MustParseAddr(src).AsSlice())
	copy(h[16:], netip.MustParseAddr(dst).AsSlice())
	return append(h, payload...)
}

// ipv6 is a header and a payload, which may begin with extension headers.
func ipv6(src, dst string, next byte, payload []byte) []byte {
	h := make([]byte, 40)
	h[0] = 0x60
	binary.BigEndian.PutUint16(h[4:], uint16(len(payload)))
	h[6], h[7] = next, 64
	copy(h[8:], netip.MustParseAddr(src).AsSlice())
	copy(h[24:], netip.MustParseAddr(dst).AsSlice())
	return append(h, payload...)
}

// option is a hop-by-hop, routing or destination header of 8*(extra+1) bytes.
func option(next byte, extra int) []byte {
	h := make([]byte, 8*(extra+1))
	h[0], h[1] = next, byte(extra)
	return h
}

// auth is an authentication header of 4*(words+2) bytes.
func auth(next byte, words int) []byte {
	h := make([]byte, 4*(words+2))
	h[0], h[1] = next, byte(words)
	return h
}

// fragment6 is a fragment header; the offset counts units of eight bytes.
func fragment6(next byte, offset uint16, more bool) []byte {
	h := make([]byte, 8)
	h[0] = next
	v := offset << 3
	if more {
		v |= 1
	}
	binary.BigEndian.PutUint16(h[2:], v)
	return h
}

// ports begins a TCP, UDP or SCTP header, long enough for each.
func ports(src, dst uint16) []byte {
	return join(be16(src), be16(dst), make([]byte, 24))
}

// arp is a message for IPv4 over Ethernet.
func arp(sender, target string) []byte {
	m := []byte{0, 1, 8, 0, 6, 4, 0, 1}
	m = join(m, []byte(poolMAC[0]), netip.MustParseAddr(sender).AsSlice())
	return join(m, make([]byte, 6), netip.MustParseAddr(target).AsSlice())
}

// pad makes a packet as long as the shortest on a wire.
func pad(p []byte) []byte {
	return append(p, make([]byte, max(0, 60-len(p)))...)
}

// randomPlain is a whole packet without tags and extension headers.
func randomPlain(r *rand.Rand) []byte {
	return pad(randomEthernet(r, nil, randomPlain6))
}

// randomAny is a packet with anything in it, perhaps cut short.
func randomAny(r *rand.Rand) []byte {
	var tags [][2]uint16
	for range r.IntN(4) {
		tags = append(tags, [2]uint16{pick(r, []uint16{0x8100, 0x88a8, 0x9100}), pick(r, poolTag)})
	}
	p := randomEthernet(r, tags, randomExtended6)
	if r.IntN(3) == 0 {
		p = p[:14+r.IntN(len(p)-13)]
	}
	return p
}

func randomEthernet(r *rand.Rand, tags [][2]uint16, six func(*rand.Rand) []byte) []byte {
	dst, src := pick(r, poolMAC), pick(r, poolMAC[:2])
	switch r.IntN(8) {
	case 0:
		return ethernet(dst, src, tags, 0x0806, arp(pick(r, pool4), pick(r, pool4)))
	case 1:
		return ethernet(dst, src, tags, pick(r, []uint16{0x8035, 0x88cc}), arp(pick(r, pool4), pick(r, pool4)))
	case 2, 3, 4:
		return ethernet(dst, src, tags, 0x86dd, six(r))
	}
	return ethernet(dst, src, tags, 0x0800, ipv4(pick(r, pool4), pick(r, pool4), pick(r, poolProto),
		r.IntN(3)*r.IntN(6), pick(r, []uint16{0, 0, 0x4000, 0x2000, 0x2003, 0x0007}), randomPorts(r)))
}

func randomPorts(r *rand.Rand) []byte { return ports(pick(r, poolPort), pick(r, poolPort)) }

func randomPlain6(r *rand.Rand) []byte {
	return ipv6(pick(r, pool6), pick(r, pool6), pick(r, poolProto), randomPorts(r))
}

// randomExtended6 puts up to ten extension headers in front of the ports.
func randomExtended6(r *rand.Rand) []byte {
	next, payload := pick(r, poolProto), randomPorts(r)
	for range r.IntN(11) * r.IntN(2) {
		kind := pick(r, []byte{0, 43, 44, 51, 60})
		switch kind {
		case 44:
			payload = join(fragment6(next, pick(r, []uint16{0, 0, 0, 1, 185}), r.IntN(2) == 0), payload)
		case 51:
			payload = join(auth(next, r.IntN(5)), payload)
		default:
			payload = join(option(next, r.IntN(3)), payload)
		}
		next = kind
	}
	return ipv6(pick(r, pool6), pick(r, pool6), next, payload)
}
