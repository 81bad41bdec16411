package testenv

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// Specimen is one frame of the Zoo, with its name.
type Specimen struct {
	Name  string
	Frame []byte
}

// Zoo returns frames of every kind that a capture must keep unchanged, for a link with the given
// MTU: short to longest, tagged once, twice and three times, IPv4 with options and in fragments,
// IPv6 with extension headers, multicast, broadcast, ARP, other protocols, and frames with wrong
// headers. It is the same each time. An interface accepts all of them from a Sender. If from is a
// card, it contains only those that the card transmits (Cards.Drops).
func Zoo(from, to *End, mtu int) []Specimen {
	z := &zoo{from: from, to: to}
	z.sizes(mtu)
	z.tags()
	z.kinds()
	z.ipv4()
	z.ipv6()
	z.broken()
	return z.all
}

// Frames returns the frames of specimens, for SendRaw.
func Frames(zoo []Specimen) [][]byte {
	frames := make([][]byte, len(zoo))
	for i, s := range zoo {
		frames[i] = s.Frame
	}
	return frames
}

type zoo struct {
	from, to *End
	all      []Specimen
}

func (z *zoo) add(name string, frame []byte) {
	if c := z.from.card; c != nil && c.drops != nil && c.drops(name, frame) {
		return
	}
	z.all = append(z.all, Specimen{name, frame})
}

// next returns a fresh UDP frame, numbered by its place in the zoo.
func (z *zoo) next(size int) []byte { return UDP(z.from, z.to, 9, uint64(len(z.all)), size) }

func (z *zoo) next6(size int) []byte { return udp6(z.from, z.to, 9, uint64(len(z.all)), size) }

// sizes adds frames with lengths around every limit of frames and blocks.
func (z *zoo) sizes(mtu int) {
	for _, n := range []int{60, 61, 63, 64, 65, 127, 128, 255, 256, 511, 512, 513, 1024, 1514, 1785, 1786, 2047, 2048, 2049,
		3555, 3556, 3557, 3839, 3840, 3841, 4095, 4096, 4097, 8191, 8192, 8193, 9000, 9014} {
		if n < mtu+etherLen {
			z.add(fmt.Sprintf("%d bytes", n), z.next(n))
		}
	}
	z.add("as long as the link takes", z.next(mtu+etherLen))
}

func (z *zoo) tags() {
	z.add("VLAN", tag(z.next(100), 0x8100, 5))
	z.add("priority tag", tag(z.next(100), 0x8100, 7<<13))
	z.add("VLAN IPv6", tag(z.next6(100), 0x8100, 4094))
	z.add("QinQ", tag(tag(z.next(100), 0x8100, 5), 0x88a8, 100))
	z.add("QinQ of old", tag(tag(z.next(100), 0x8100, 5), 0x8100, 100))
	z.add("three tags", tag(tag(tag(z.next(100), 0x8100, 5), 0x8100, 6), 0x88a8, 7))
	z.add("tag and nothing behind", tag(z.next(60), 0x8100, 5)[:18])
}

// kinds adds frames that are not IP, or not for one station.
func (z *zoo) kinds() {
	arp := make([]byte, 60)
	ether(arp, z.from, z.to, 0x0806)
	copy(arp[etherLen:], []byte{0, 1, 8, 0, 6, 4, 0, 1})
	copy(arp[22:], z.from.MAC)
	copy(arp[28:], z.from.IP.AsSlice())
	copy(arp[38:], z.to.IP.AsSlice())
	z.add("ARP", arp)

	broadcast := z.next(100)
	copy(broadcast, "\xff\xff\xff\xff\xff\xff")
	z.add("broadcast", broadcast)
	group := z.next(100)
	copy(group, "\x01\x00\x5e\x01\x02\x03")
	ipv4(group[etherLen:], z.from.IP, netip.AddrFrom4([4]byte{239, 1, 2, 3}), 17)
	z.add("multicast", group)
	group6 := z.next6(100)
	copy(group6, "\x33\x33\x00\x00\x00\x01")
	z.add("multicast IPv6", group6)

	for _, kind := range []uint16{0x88cc, 0x88b5, 0x8847, 46, 0} {
		f := z.next(60)
		binary.BigEndian.PutUint16(f[12:], kind)
		z.add(fmt.Sprintf("type %#04x", kind), f)
	}
}

func (z *zoo) ipv4() {
	for _, p := range []byte{1, 2, 6, 47, 50, 132, 255} {
		f := z.next(90)
		ipv4(f[etherLen:], z.from.IP, z.to.IP, p)
		z.add(fmt.Sprintf("IPv4 protocol %d", p), f)
	}
	z.add("IPv4 options", z.options())
	for _, part := range []struct {
		name string
		word uint16
	}{{"first fragment", 0x2000}, {"middle fragment", 0x2010}, {"last fragment", 0x0020}, {"not to be fragmented", 0x4000}} {
		f := z.next(110)
		binary.BigEndian.PutUint16(f[etherLen+6:], part.word)
		setIPv4Sum(f[etherLen:])
		z.add("IPv4 "+part.name, f)
	}
}

// options makes room for 40 bytes of options between the header and UDP.
func (z *zoo) options() []byte {
	f := z.next(100)
	long := append(append(append([]byte{}, f[:etherLen+ipv4Len]...), make([]byte, 40)...), f[etherLen+ipv4Len:]...)
	ip := long[etherLen:]
	for i := range 40 {
		ip[ipv4Len+i] = 1 // no operation
	}
	ip[0] = 0x4f
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], ^fold(sum(0, ip[:60])))
	return long
}

func (z *zoo) ipv6() {
	z.add("IPv6", z.next6(100))
	const hopByHop, routing, fragment, destination = 0, 43, 44, 60
	z.add("IPv6 hop by hop", z.chain(hopByHop))
	z.add("IPv6 routing", z.chain(routing))
	z.add("IPv6 destination options", z.chain(destination))
	z.add("IPv6 all extension headers", z.chain(hopByHop, destination, routing, fragment, destination))
	z.add("IPv6 first fragment", z.chain(fragment))
	later := z.chain(fragment)
	binary.BigEndian.PutUint16(later[etherLen+ipv6Len+2:], 64<<3|1)
	z.add("IPv6 later fragment", later)
	z.add("IPv6 many extension headers", z.chain(destination, destination, destination, destination, destination,
		destination, destination, destination, destination, destination))
	none := z.next6(100)
	none[etherLen+6] = 59
	z.add("IPv6 no next header", none)
}

// chain puts extension headers of eight bytes each between IPv6 and UDP.
func (z *zoo) chain(kinds ...byte) []byte {
	f := z.next6(100)
	rest := append([]byte{}, f[etherLen+ipv6Len:]...)
	f = f[:etherLen+ipv6Len]
	next := &f[etherLen+6]
	for _, k := range kinds {
		*next = k
		f = append(f, make([]byte, 8)...)
		next = &f[len(f)-8]
		if k == 0 || k == 60 {
			copy(f[len(f)-6:], []byte{1, 4}) // PadN over the rest
		}
	}
	*next = 17
	f = append(f, rest...)
	binary.BigEndian.PutUint16(f[etherLen+4:], uint16(len(f)-etherLen-ipv6Len))
	return f
}

// broken adds packets whose headers contradict their contents.
func (z *zoo) broken() {
	const ip, udp = etherLen, etherLen + ipv4Len
	lies := []struct {
		name string
		at   int
		to   byte
	}{
		{"IPv4 header too short", ip, 0x44},
		{"IPv4 header longer than the frame", ip, 0x4f},
		{"IPv4 version 6", ip, 0x65},
		{"IPv4 longer than the frame", ip + 2, 0xff},
		{"IPv4 checksum wrong", ip + 10, 0xaa},
		{"UDP longer than the packet", udp + 4, 0xff},
		{"UDP checksum wrong", udp + 6, 0xaa},
	}
	for _, l := range lies {
		f := z.next(60)
		f[l.at] = l.to
		z.add(l.name, f)
	}
	zero := z.next(60)
	copy(zero[ip+2:], "\x00\x00")
	z.add("IPv4 of no length", zero)
	cut := z.next6(100)
	cut[etherLen+4] = 0xff
	z.add("IPv6 longer than the frame", cut)
	ext := z.chain(60)
	ext[etherLen+ipv6Len+1] = 0xff
	z.add("IPv6 extension header longer than the frame", ext)
	for _, n := range []int{15, 20, 34, 40, 42} {
		z.add(fmt.Sprintf("cut to %d bytes", n), z.next(60)[:n])
	}
	z.add("cut IPv6", z.next6(100)[:50])
}
