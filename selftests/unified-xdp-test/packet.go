package main

import (
	"encoding/binary"
)

// A packet of this program is Ethernet, IPv4, UDP, and then, big endian: a magic number, a sequence
// number, and for -ping the time of sending. The addresses are those that RFC 2544 reserves for
// measurements, and the port is discard's. There is no UDP checksum, as IPv4 allows.
const (
	ipAt       = 14
	udpAt      = ipAt + 20
	magicAt    = udpAt + 8
	sequenceAt = magicAt + 4
	stampAt    = sequenceAt + 8
	minSize    = 64
	discard    = 9
	magic      = 0x75786470 // "uxdp"
)

// ownFilter matches the packets of this program, and no packets of other programs.
const ownFilter = "udp port 9 and host 198.18.0.1 and host 198.18.0.2"

// compose writes a packet over all of b. flow sets the source port, which cards with several queues
// use to choose a queue.
func compose(b []byte, to, from [6]byte, flow uint16) {
	clear(b)
	copy(b, to[:])
	copy(b[6:], from[:])
	binary.BigEndian.PutUint16(b[12:], 0x0800)
	ip := b[ipAt:udpAt]
	ip[0], ip[8], ip[9] = 0x45, 64, 17 // version and header length, time to live, UDP
	binary.BigEndian.PutUint16(ip[2:], uint16(len(b)-ipAt))
	copy(ip[12:], []byte{198, 18, 0, 1, 198, 18, 0, 2})
	binary.BigEndian.PutUint16(ip[10:], checksum(ip))
	binary.BigEndian.PutUint16(b[udpAt:], 49152+flow%16384)
	binary.BigEndian.PutUint16(b[udpAt+2:], discard)
	binary.BigEndian.PutUint16(b[udpAt+4:], uint16(len(b)-udpAt))
	binary.BigEndian.PutUint32(b[magicAt:], magic)
}

// checksum is the Internet checksum (RFC 1071) of an even number of bytes.
func checksum(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// number writes the sequence number and the time.
func number(b []byte, sequence, stamp uint64) {
	binary.BigEndian.PutUint64(b[sequenceAt:], sequence)
	binary.BigEndian.PutUint64(b[stampAt:], stamp)
}

// read recognises our packets, and returns the values that number wrote.
func read(b []byte) (sequence, stamp uint64, ours bool) {
	if len(b) < minSize || binary.BigEndian.Uint32(b[magicAt:]) != magic {
		return 0, 0, false
	}
	return binary.BigEndian.Uint64(b[sequenceAt:]), binary.BigEndian.Uint64(b[stampAt:]), true
}

// turnRound swaps the MAC addresses, so that the packet returns to its sender.
func turnRound(b []byte) {
	if len(b) < ipAt {
		return
	}
	var to [6]byte
	copy(to[:], b)
	copy(b[:6], b[6:12])
	copy(b[6:], to[:])
}
