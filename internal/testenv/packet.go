package testenv

import (
	"bytes"
	"encoding/binary"
	"net/netip"
)

// The UDP payload of the frames made here has a mark, a sequence number, and bytes that follow from
// the number. So a receiver can tell which frame it has and whether it is intact.
const (
	etherLen = 14
	ipv4Len  = 20
	ipv6Len  = 40
	udpLen   = 8

	// minUDP and minUDP6 are the lengths of the shortest frames of UDP and udp6, in bytes.
	minUDP  = etherLen + ipv4Len + udpLen + markLen + 8
	minUDP6 = etherLen + ipv6Len + udpLen + markLen + 8
)

const markLen = 4

var mark = []byte("ufd#")

// UDP returns frame i of a stream from one end to the other. It has size bytes with the Ethernet
// header (at least minUDP), IPv4, and correct checksums. Streams of different ports differ only in
// the port. The caller owns the frame.
func UDP(from, to *End, port uint16, i uint64, size int) []byte {
	frame := make([]byte, max(size, minUDP))
	ether(frame, from, to, 0x0800)
	ipv4(frame[etherLen:], from.IP, to.IP, 17)
	udp(frame[etherLen+ipv4Len:], from.IP, to.IP, port, i)
	return frame
}

// udp6 is UDP over IPv6; frames are at least minUDP6 bytes long.
func udp6(from, to *End, port uint16, i uint64, size int) []byte {
	frame := make([]byte, max(size, minUDP6))
	ether(frame, from, to, 0x86dd)
	ipv6(frame[etherLen:], from.IP6, to.IP6, 17)
	udp(frame[etherLen+ipv6Len:], from.IP6, to.IP6, port, i)
	return frame
}

// Stream returns n UDP frames numbered from first, each of size bytes.
func Stream(from, to *End, port uint16, first uint64, n, size int) [][]byte {
	frames := make([][]byte, n)
	for i := range frames {
		frames[i] = UDP(from, to, port, first+uint64(i), size)
	}
	return frames
}

// tag returns a copy of the frame with a VLAN tag in front of its type: tpid
// 0x8100 for a customer tag, 0x88a8 for a service tag. Tag it again for QinQ.
func tag(frame []byte, tpid, vid uint16) []byte {
	out := make([]byte, 0, len(frame)+4)
	out = append(out, frame[:12]...)
	out = binary.BigEndian.AppendUint16(out, tpid)
	out = binary.BigEndian.AppendUint16(out, vid)
	return append(out, frame[12:]...)
}

// Sequence returns the number of a frame made here, whatever its headers. ok is false for other
// frames, and for frames that are too short.
func Sequence(frame []byte) (i uint64, ok bool) {
	at := bytes.Index(frame, mark)
	if at < 0 || len(frame) < at+markLen+8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(frame[at+markLen:]), true
}

// Intact reports whether every payload byte of a frame made here is as its number requires.
func Intact(frame []byte) bool {
	i, ok := Sequence(frame)
	if !ok {
		return false
	}
	at := bytes.Index(frame, mark)
	want := make([]byte, len(frame)-at)
	payload(want, i)
	return bytes.Equal(frame[at:], want)
}

// payload fills b with the mark, the number, and a pattern of number and position. So a check
// detects both wrong and shifted frames.
func payload(b []byte, i uint64) {
	copy(b, mark)
	binary.BigEndian.PutUint64(b[markLen:], i)
	for n := markLen + 8; n < len(b); n++ {
		b[n] = byte(uint64(n)*7 + i*13)
	}
}

func ether(b []byte, from, to *End, kind uint16) {
	copy(b[0:6], to.MAC)
	copy(b[6:12], from.MAC)
	binary.BigEndian.PutUint16(b[12:], kind)
}

// ipv4 writes a header without options over all of b.
func ipv4(b []byte, src, dst netip.Addr, protocol byte) {
	b[0] = 0x45
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	b[8], b[9] = 64, protocol
	copy(b[12:16], src.AsSlice())
	copy(b[16:20], dst.AsSlice())
	setIPv4Sum(b)
}

func setIPv4Sum(b []byte) {
	b[10], b[11] = 0, 0
	binary.BigEndian.PutUint16(b[10:], ^fold(sum(0, b[:ipv4Len])))
}

// ipv6 writes a fixed header over all of b.
func ipv6(b []byte, src, dst netip.Addr, next byte) {
	b[0] = 0x60
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)-ipv6Len))
	b[6], b[7] = next, 64
	copy(b[8:24], src.AsSlice())
	copy(b[24:40], dst.AsSlice())
}

// udp writes header, payload and checksum over all of b.
func udp(b []byte, src, dst netip.Addr, port uint16, i uint64) {
	binary.BigEndian.PutUint16(b[0:], 40000)
	binary.BigEndian.PutUint16(b[2:], port)
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)))
	payload(b[udpLen:], i)
	pseudo := sum(uint64(len(b))+17, src.AsSlice())
	c := ^fold(sum(sum(pseudo, dst.AsSlice()), b))
	if c == 0 {
		c = 0xffff // RFC 768: zero on the wire means no checksum
	}
	binary.BigEndian.PutUint16(b[6:], c)
}

// sum adds b, as 16-bit words, to an Internet checksum (RFC 1071).
func sum(s uint64, b []byte) uint64 {
	for ; len(b) > 1; b = b[2:] {
		s += uint64(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	return s
}

func fold(s uint64) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}
