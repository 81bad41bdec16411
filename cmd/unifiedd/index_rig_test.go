package main

import (
	"bufio"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// talk is random traffic of many flows that begin and end, with frames of the Zoo among it.
type talk struct {
	random *rand.Rand
	zoo    []testenv.Specimen
	frame  []byte
	n      uint64
}

const (
	talkers   = 200 // concurrent flows
	talkLife  = 20  // packets after which a new flow replaces the oldest
	talkZoo   = 200 // packets for each frame of the Zoo
	talkStep  = time.Microsecond
	talkHosts = 500
)

func newTalk(seed uint64) *talk {
	from := &testenv.End{MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, IP: netip.MustParseAddr("10.77.0.1"), IP6: netip.MustParseAddr("fd77::1")}
	to := &testenv.End{MAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, IP: netip.MustParseAddr("10.77.0.2"), IP6: netip.MustParseAddr("fd77::2")}
	return &talk{random: rand.New(rand.NewPCG(seed, 1)), zoo: testenv.Zoo(from, to, 1500), frame: make([]byte, 1514)}
}

// next returns a frame. It is valid until the next call.
func (k *talk) next() []byte {
	k.n++
	if k.n%talkZoo == 0 {
		return k.zoo[k.random.IntN(len(k.zoo))].Frame
	}
	flow := k.n/talkLife + k.random.Uint64N(talkers)
	size := 60 + k.random.IntN(1454)
	b := k.frame[:size]
	k.address(b, flow, k.random.IntN(2) == 0)
	return b
}

// address writes the headers of a flow in one of its two directions. A flow goes from a client to
// one of a few servers, in UDP or TCP. One in eight uses IPv6, and one in sixteen has a VLAN tag.
func (k *talk) address(b []byte, flow uint64, back bool) {
	clear(b[:min(len(b), 80)])
	at := 14
	if flow%16 == 5 {
		binary.BigEndian.PutUint16(b[12:], 0x8100)
		binary.BigEndian.PutUint16(b[14:], uint16(flow%3+1))
		at = 18
	}
	client, server := byte(flow%talkHosts>>8), byte(flow%7)
	ports, addresses := [2]uint16{uint16(20000 + flow%40000), []uint16{443, 80, 53}[flow%3]}, [2][2]byte{{client, byte(flow % talkHosts)}, {255, server}}
	if back {
		ports[0], ports[1] = ports[1], ports[0]
		addresses[0], addresses[1] = addresses[1], addresses[0]
	}
	protocol, head := byte(6), 20
	if flow%3 == 2 {
		protocol = 17
	}
	binary.BigEndian.PutUint16(b[at-2:], 0x0800)
	ip := b[at:]
	if flow%8 == 3 {
		binary.BigEndian.PutUint16(b[at-2:], 0x86dd)
		head = 40
		ip[0], ip[6] = 0x60, protocol
		for i, a := range addresses {
			copy(ip[8+16*i:], []byte{0x20, 1, 0x0d, 0xb8})
			copy(ip[8+16*i+14:], a[:])
		}
		if len(ip) < head+4 {
			return
		}
	} else {
		ip[0], ip[9] = 0x45, protocol
		for i, a := range addresses {
			copy(ip[12+4*i:], []byte{10, 0, a[0], a[1]})
		}
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		if flow%32 == 9 && k.n%4 == 1 { // a later fragment
			ip[7] = 8
		}
	}
	binary.BigEndian.PutUint16(ip[head:], ports[0])
	binary.BigEndian.PutUint16(ip[head+2:], ports[1])
}

// at returns the arrival time of the current packet.
func (k *talk) at() uint64 { return uint64(begin.Add(time.Duration(k.n) * talkStep).UnixNano()) }

const talkBatch = 128 << 10

// talkSegment writes a closed segment of about size bytes.
func talkSegment(t testing.TB, name string, id byte, size int64, k *talk) {
	t.Helper()
	f, err := os.Create(name)
	testenv.Must(t, err)
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	seg := pcapng.Segment{ID: pcapng.SegmentID{id, 1}, Align: 4096}
	out, err := pcapng.AppendSegmentHead(nil, pcapng.Section{}, []pcapng.Interface{{Name: "eth1", LinkType: 1}}, seg)
	testenv.Must(t, err)
	b := pcapng.Batch{Segment: seg.ID, Align: seg.Align, Sequence: 1, Offset: uint64(len(out))}
	put := func(raw []byte) {
		if _, err := w.Write(raw); err != nil {
			t.Fatal(err)
		}
	}
	put(out)
	for int64(b.Offset) < size {
		out = talkRecords(out[:0], &b, k)
		put(out)
		b.Offset, b.FirstPacket, b.Sequence = b.Offset+uint64(b.Length), b.FirstPacket+uint64(b.Packets), b.Sequence+1
	}
	b.Packets, b.Length, b.Durable = 0, b.Align, b.Offset
	out = make([]byte, b.Align)
	pcapng.PutBatchHeader(out, &b)
	put(out)
	testenv.Must(t, w.Flush())
}

// talkRecords appends a batch to out, and sets its fields in b.
func talkRecords(out []byte, b *pcapng.Batch, k *talk) []byte {
	out = append(out, make([]byte, pcapng.MinMarkLen)...)
	b.Packets = 0
	for len(out) < talkBatch {
		p := k.next()
		n, at := pcapng.PacketBlockLen(uint32(len(p)), 4), len(out)
		out = append(out, make([]byte, n)...)
		pcapng.PutPacket(out[at:], 0, k.at(), p, uint32(len(p)), n)
		b.Packets++
	}
	at := len(out)
	out = append(out, make([]byte, pcapng.PaddingLen(int64(len(out)), b.Align))...)
	if len(out) > at {
		pcapng.PutPadding(out[at:])
	}
	b.Length = uint32(len(out))
	pcapng.PutBatchHeader(out[:pcapng.MinMarkLen], b)
	return out
}
