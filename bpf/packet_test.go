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
	poolProto = []byte{1, 2, 6, 6, 6, 17, 17, 50, 51, 58, 132, 9, 47, 89, 103, 112}
	poolMAC   = []string{"\x02\x00\x00\x00\x00\x01", "\x02\x00\x00\x00\x00\x02", "\x01\x00\x5e\x00\x00\x05", "\xff\xff\xff\xff\xff\xff"}
	poolTag   = []uint16{0, 5, 6, 4095}
)

func pick[T any](r *rand.Rand, pool []T) T { return pool[r.IntN(len(pool))] }

// join concatenates the parts of a packet.
func join(parts ...[]byte) []byte {
	var all []byte
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func be16(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }

// ethernet returns the beginning of a packet; tags are pairs of a type and a number.
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

// pad pads a packet to the shortest length on a wire.
func pad(p []byte) []byte {
	return append(p, make([]byte, max(0, 60-len(p)))...)
}

// randomPlain is a whole packet without tags and extension headers.
func randomPlain(r *rand.Rand) []byte {
	return pad(randomEthernet(r, nil, randomPlain6))
}

// randomAny is a packet with any content, perhaps truncated.
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
		r.IntN(3)*r.IntN(6), pick(r, []uint16{0, 0, 0x4000, 0x2000, 0x2003, 0x0007}), randomSegment(r)))
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

// label is an MPLS label; last says that no label follows.
func label(number uint32, last bool) []byte {
	v := number<<12 | 64
	if last {
		v |= 1 << 8
	}
	return binary.BigEndian.AppendUint32(nil, v)
}

// udp is a header and a payload.
func udp(src, dst uint16, payload []byte) []byte {
	return join(be16(src), be16(dst), be16(uint16(8+len(payload))), be16(0), payload)
}

// geneve is a header with words of options.
func geneve(protocol uint16, network uint32, options int) []byte {
	h := join([]byte{byte(options), 0}, be16(protocol), binary.BigEndian.AppendUint32(nil, network<<8))
	return append(h, make([]byte, 4*options)...)
}

// randomIP is an IP packet and its ethertype.
func randomIP(r *rand.Rand) (ethertype uint16, packet []byte) {
	if r.IntN(3) == 0 {
		return 0x86dd, randomExtended6(r)
	}
	return 0x0800, ipv4(pick(r, pool4), pick(r, pool4), pick(r, poolProto), r.IntN(3), 0, randomSegment(r))
}

// randomSegment is any payload of an IP header.
func randomSegment(r *rand.Rand) []byte {
	b := join(randomPorts(r), make([]byte, r.IntN(40)))
	b[pick(r, []int{0, 0, 12, 13, 20})] = pick(r, []byte{0x20, 0x50, 2, 8, 16, 18, 128})
	return b
}

// randomLayered is a packet in LLC, MPLS, PPPoE or Geneve, perhaps after a tag, and perhaps
// truncated.
func randomLayered(r *rand.Rand) []byte {
	var tags [][2]uint16
	if r.IntN(5) == 0 {
		tags = append(tags, [2]uint16{0x8100, pick(r, poolTag)})
	}
	dst, src := pick(r, poolMAC), pick(r, poolMAC[:2])
	ethertype, ip := randomIP(r)
	p := randomInside(r, dst, src, tags, ethertype, ip)
	if r.IntN(4) == 0 {
		p = p[:14+r.IntN(len(p)-13)]
	}
	return p
}

func randomInside(r *rand.Rand, dst, src string, tags [][2]uint16, ethertype uint16, ip []byte) []byte {
	switch r.IntN(6) {
	case 0:
		labels := label(pick(r, []uint32{100, 5}), false)
		if r.IntN(2) == 0 {
			labels = nil
		}
		return ethernet(dst, src, tags, 0x8847, join(labels, label(pick(r, []uint32{1024, 100}), true), ip))
	case 1:
		ppp := map[uint16]uint16{0x0800: 0x21, 0x86dd: 0x57}[ethertype]
		session := join([]byte{0x11, 0}, be16(pick(r, []uint16{7, 8})), be16(uint16(len(ip)+2)), be16(ppp))
		return ethernet(dst, src, tags, pick(r, []uint16{0x8864, 0x8864, 0x8863}), join(session, ip))
	case 2, 3:
		return ethernet(dst, src, tags, 0x0800, ipv4(pick(r, pool4), pick(r, pool4), 17, r.IntN(2), 0, randomGeneve(r, ethertype, ip)))
	case 4:
		return ethernet(dst, src, tags, 0x86dd, ipv6(pick(r, pool6), pick(r, pool6), 17, randomGeneve(r, ethertype, ip)))
	}
	return randomLLC(r, dst, src, tags)
}

// randomGeneve is a UDP packet with an inner IP packet, perhaps in Ethernet.
func randomGeneve(r *rand.Rand, ethertype uint16, ip []byte) []byte {
	network := pick(r, []uint32{11, 12})
	inner := join(geneve(ethertype, network, r.IntN(3)), ip)
	if r.IntN(2) == 0 {
		var tags [][2]uint16
		if r.IntN(3) == 0 {
			tags = append(tags, [2]uint16{0x8100, 6})
		}
		inner = join(geneve(0x6558, network, r.IntN(3)), ethernet(pick(r, poolMAC), pick(r, poolMAC), tags, ethertype, ip))
	}
	if r.IntN(10) == 0 {
		inner[0] |= 0x40 // another version
	}
	return udp(5555, 6081, inner)
}

// randomLLC is one of the frames.
func randomLLC(r *rand.Rand, dst, src string, tags [][2]uint16) []byte {
	p := pick(r, frames(r))
	return join([]byte(dst+src), ethernet("", "", tags, 0, nil)[:4*len(tags)], p[12:])
}

// frames have a length in place of a type, followed by LLC, or the type of a protocol that also
// occurs in LLC.
func frames(r *rand.Rand) (list [][]byte) {
	frame := func(kind uint16, start ...byte) {
		list = append(list, ethernet(pick(r, poolMAC), pick(r, poolMAC), nil, kind, append(start, make([]byte, 46-len(start))...)))
	}
	for _, control := range []byte{0, 1, 5, 9, 3, 0x63, 0x43, 0x6f, 0xe3, 0xaf, 0x87, 0xbf} {
		frame(46, 0x42, 0x42, control)
	}
	for _, kind := range []byte{15, 16, 17, 18, 20, 24, 25, 26, 27, 28} {
		frame(46, 0xfe, 0xfe, 3, 0x83, 0, 0, 0, kind)
	}
	for _, proto := range []byte{0x81, 0x82, 0x84} {
		frame(46, 0xfe, 0xfe, 3, proto)
	}
	for _, sap := range []byte{0, 6, 0xe0, 0xf0, 0xff} {
		frame(46, sap, sap, 3)
	}
	frame(46, 0xaa, 0xaa, 3, 8, 0, 7, 0x80, 0x9b)
	frame(46, 0xaa, 0xaa, 3, 0, 0, 0, 0x80, 0xf3)
	frame(46, 0xaa, 0xaa, 3, 0, 0, 0, 0x81, 0x37)
	for _, kind := range []uint16{0, 1500, 1501, 0x809b, 0x80f3, 0x8137, 0x6001, 0x6002, 0x6003, 0x6004, 0x6007, 0x8863, 0x88cc, 0xffff} {
		frame(kind, 6, 6, 3)
	}
	return list
}

// typical are packets like those in the manuals' examples.
func typical() (list [][]byte) {
	four := func(proto byte, payload []byte) []byte { return ipv4("10.0.0.1", "10.0.0.2", proto, 0, 0, payload) }
	add := func(kind uint16, payload []byte, tags ...[2]uint16) {
		list = append(list, pad(ethernet(poolMAC[0], poolMAC[1], tags, kind, payload)))
	}
	tag, session := [2]uint16{0x8100, 5}, []byte{0x11, 0, 0, 7, 0, 60}
	for _, flags := range []byte{2, 18, 16, 1, 4, 20} {
		segment := join(ports(80, 443), []byte("GET "))
		segment[12], segment[13] = 0x50, flags
		add(0x0800, four(6, segment))
		add(0x0800, ipv4("10.0.0.1", "192.0.2.1", 6, 0, 0, segment[:20]))
		add(0x0800, four(6, segment), tag)
		add(0x86dd, ipv6("2001:db8::1", "2001:db8::2", 6, segment))
		add(0x8864, join(session, be16(0x21), four(6, segment)), tag)
		add(0x8847, join(label(100, false), label(1024, true), four(6, segment)))
		add(0x8847, join(label(5, true), four(6, segment)))
	}
	for _, kind := range []byte{0, 3, 8, 128, 135} {
		add(0x0800, four(1, join([]byte{kind, 1}, make([]byte, 30))))
		add(0x86dd, ipv6("2001:db8::1", "fe80::1", 58, join([]byte{kind, kind & 1}, make([]byte, 30))))
		add(0x0800, four(2, join([]byte{kind}, make([]byte, 30))))
	}
	for _, port := range []uint16{53, 80, 123, 5000, 5353, 4791, 21, 22, 79, 8080} {
		datagram := udp(port, port+1, make([]byte, 20))
		add(0x0800, four(17, datagram))
		add(0x0800, four(17, udp(1, port, make([]byte, 600))))
		add(0x0800, four(17, datagram), tag)
		add(0x8864, join(session, be16(0x57), ipv6("2001:db8::1", "2001:db8::2", 17, datagram)))
		add(0x0800, four(6, join(be16(port+1), be16(port), make([]byte, 20))))
		inner := join(geneve(0x86dd, 11, 1), ipv6("2001:db8::1", "2001:db8::2", 17, datagram))
		add(0x0800, four(17, udp(1, 6081, inner)))
	}
	for _, proto := range []byte{0, 9, 47, 50, 51, 89, 103, 112, 132} {
		add(0x0800, four(proto, join([]byte{0x20}, make([]byte, 40))))
		add(0x86dd, ipv6("2001:db8::1", "2001:db8::2", 44, join(fragment6(proto, 0, false), make([]byte, 40))))
	}
	add(0x86dd, ipv6("2001:db8::1", "2001:db8::2", 44, join(fragment6(44, 0, false), make([]byte, 40))))
	add(0x0800, four(132, join(ports(1, 6001), make([]byte, 20))))
	add(0x0800, four(17, join(ports(53, 80), make([]byte, 8))))
	add(0x0800, ipv4("10.0.0.1", "0.0.0.10", 17, 0, 0, make([]byte, 30)))
	add(0x8035, arp("10.0.0.1", "10.0.0.2"))
	add(0x0800, four(132, join(ports(6000, 6000), make([]byte, 20))))
	add(0x0800, ipv4("10.0.0.1", "10.0.0.1", 6, 0, 0, ports(80, 80)))
	add(0x0800, four(112, make([]byte, 30)))
	add(0x86dd, ipv6("2001:db8::1", "2001:db8::2", 44, join([]byte{6}, make([]byte, 40))))
	add(0x86dd, ipv6("2001:db8::1", "2001:db8::2", 6, append([]byte{6}, make([]byte, 40)...)))
	ip := four(6, make([]byte, 20))
	ip[1] = 68
	add(0x0800, ip)
	ip = four(6, make([]byte, 20))
	ip[1] = 2
	add(0x0800, ip)
	return list
}

// malformed are packets that break rules: every beginning of some packets, headers with lengths
// that are too short or too long, and random bytes after the known types.
func malformed(r *rand.Rand) (packets [][]byte) {
	whole := ethernet(poolMAC[0], poolMAC[1], nil, 0x0800, ipv4("10.0.0.1", "10.0.0.2", 6, 1, 0, ports(1234, 80)))
	six := ethernet(poolMAC[0], poolMAC[1], nil, 0x86dd, ipv6("2001:db8::1", "2001:db8::2", 0, join(option(44, 1), fragment6(6, 0, true), ports(53, 80))))
	for n := range len(whole) {
		packets = append(packets, whole[:n])
	}
	for n := 14; n < len(six); n++ {
		packets = append(packets, six[:n])
	}
	for _, first := range []byte{0x40, 0x44, 0x4f, 0x65, 0xff, 0} {
		p := append([]byte{}, whole...)
		p[14] = first
		packets = append(packets, p)
	}
	for _, kind := range []uint16{0x0800, 0x86dd, 0x0806, 0x8100, 0x88a8, 0x8847, 0x8864, 46, 0} {
		for range 8 {
			p := ethernet(pick(r, poolMAC), pick(r, poolMAC), nil, kind, make([]byte, r.IntN(100)))
			for i := 14; i < len(p); i++ {
				p[i] = byte(r.Uint32())
			}
			packets = append(packets, p)
		}
	}
	return packets
}
