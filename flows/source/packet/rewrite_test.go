package packet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/unifiedd/unifiedd/flows/layout"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// poison fills a ring before the kernel writes to it. No packet of the tests has such a byte.
const poison = 0xa5

// arrived is a packet as it comes to the socket.
type arrived struct {
	data    []byte // without the tag
	length  uint32 // of the whole packet, without the tag
	tag     int    // the tag that the kernel has removed; -1: none
	tagType uint16
	maclen  int // bytes before the network header
	kind    uint8
	status  uint32
	at      uint64 // nanoseconds
}

// kernelBlock makes a block as tpacket_rcv does (net/packet/af_packet.c), on poisoned memory. It returns how many
// of the packets fit.
func kernelBlock(size, reserve int, all []arrived) (b []byte, fit int) {
	b = bytes.Repeat([]byte{poison}, size)
	at, last := firstPacket, -1
	for _, p := range all {
		network := (packetHeader+address+max(p.maclen, 16)+15)&^15 + reserve
		mac := network - p.maclen
		need := (mac + len(p.data) + 7) &^ 7
		if at+need >= size {
			break
		}
		h := b[at:]
		if last >= 0 {
			native.PutUint32(b[last:], uint32(at-last))
		}
		native.PutUint32(h, 0)
		native.PutUint32(h[4:], uint32(p.at/1e9))
		native.PutUint32(h[8:], uint32(p.at%1e9))
		native.PutUint32(h[12:], uint32(len(p.data)))
		native.PutUint32(h[16:], p.length)
		status := p.status
		if p.tag >= 0 {
			status |= unix.TP_STATUS_VLAN_VALID | unix.TP_STATUS_VLAN_TPID_VALID
			native.PutUint32(h[32:], uint32(p.tag))
			native.PutUint16(h[36:], p.tagType)
		}
		native.PutUint32(h[20:], status)
		native.PutUint16(h[24:], uint16(mac))
		native.PutUint16(h[26:], uint16(network))
		h[packetHeader+10] = p.kind
		copy(h[mac:], p.data)
		last, at, fit = at, at+need, fit+1
	}
	clear(b[:blockHeader])
	native.PutUint32(b[blockStatus:], unix.TP_STATUS_USER)
	native.PutUint32(b[blockPackets:], uint32(fit))
	native.PutUint32(b[blockFirst:], firstPacket)
	return b, fit
}

// whole returns the packet as the file must have it.
func (p *arrived) whole(snap uint32) (data []byte, length uint32) {
	data, length = p.data, p.length
	if p.tag >= 0 && len(data) >= ethernetTag {
		tag := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, p.tagType), uint16(p.tag))
		data = append(append(bytes.Clone(data[:ethernetTag]), tag...), data[ethernetTag:]...)
		length += tagLen
	}
	return data[:min(len(data), int(snap))], length
}

// record is one block of a file, parsed strictly.
type record struct {
	iface        uint32
	at           uint64
	data         []byte
	length       uint32
	flags        uint32
	optionsEnded bool
}

// records parses the records of a rewritten block. It fails on any byte that is not zero where nothing is said.
func records(t interface {
	Fatalf(string, ...any)
	Helper()
}, b []byte, about *layout.Block) (all []record) {
	t.Helper()
	le := binary.LittleEndian
	for at := about.Head; at < about.Length; {
		r := b[at:about.Length]
		n := le.Uint32(r[4:])
		if le.Uint32(r) != pcapng.TypePacket || n%4 != 0 || n > uint32(len(r)) || le.Uint32(r[n-4:]) != n {
			t.Fatalf("no packet block at %d: % x", at, r[:min(len(r), 64)])
		}
		one := record{iface: le.Uint32(r[8:]), at: uint64(le.Uint32(r[12:]))<<32 | uint64(le.Uint32(r[16:])), length: le.Uint32(r[24:])}
		kept := le.Uint32(r[20:])
		one.data = r[28 : 28+kept]
		options := r[28+kept : n-4]
		for -kept&3 != 0 && len(options)%4 != 0 {
			if options[0] != 0 {
				t.Fatalf("padding of the packet at %d: % x", at, options)
			}
			options = options[1:]
		}
		for len(options) > 0 && !one.optionsEnded {
			code, size := le.Uint16(options), uint32(le.Uint16(options[2:]))
			value := options[4 : 4+size]
			switch {
			case code == 2 && size == 4:
				one.flags = le.Uint32(value)
			case code == 19373:
				if le.Uint32(value) != pcapng.PEN || !bytes.Equal(value[4:], make([]byte, size-4)) {
					t.Fatalf("custom option at %d: % x", at, value)
				}
			case code == 0x8000 && size == 0:
			case code == 0 && size == 0:
				one.optionsEnded = true
			default:
				t.Fatalf("option %d of %d bytes at %d", code, size, at)
			}
			options = options[4+(size+3)&^3:]
		}
		if !bytes.Equal(options, make([]byte, len(options))) {
			t.Fatalf("after the options of the packet at %d: % x", at, options)
		}
		all = append(all, one)
		at += n
	}
	return all
}

// drawn draws a packet of an Ethernet interface, or of one without Ethernet headers.
func drawn(t *rapid.T, raw bool, most int) arrived {
	maclen := rapid.SampledFrom([]int{14, 14, 14, 18, 22, 26}).Draw(t, "bytes before the network header")
	if raw {
		maclen = 0
	}
	p := arrived{
		maclen: maclen, tag: -1, kind: rapid.SampledFrom([]uint8{0, 1, 2, 3, 4}).Draw(t, "kind"), at: rapid.Uint64Range(1e18, 4e18).Draw(t, "time"),
		status: rapid.SampledFrom([]uint32{0, 0, unix.TP_STATUS_CSUMNOTREADY, unix.TP_STATUS_CSUM_VALID | unix.TP_STATUS_GSO_TCP, unix.TP_STATUS_TS_RAW_HARDWARE}).Draw(t, "status"),
	}
	if !raw && rapid.Bool().Draw(t, "tagged") {
		p.tag, p.tagType = rapid.IntRange(0, 0xffff).Draw(t, "tag"), rapid.SampledFrom([]uint16{0x8100, 0x88a8}).Draw(t, "tag's type")
	}
	size := rapid.IntRange(max(maclen, 1), most).Draw(t, "size")
	p.data = make([]byte, size)
	for i := range p.data {
		p.data[i] = byte(i*7+size) &^ 1 // never the poison
	}
	p.length = uint32(size + rapid.SampledFrom([]int{0, 0, 1, 5000}).Draw(t, "cut off"))
	return p
}

// TestRewrite: for any packets, every record of a rewritten block is what arrived. No byte of earlier use is left
// between them: records says so for each byte that is neither of a packet nor of a number.
func TestRewrite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.Bool().Draw(t, "raw")
		size := rapid.SampledFrom([]int{4096, 8192, 65536}).Draw(t, "block")
		var sent []arrived
		for range rapid.IntRange(1, 60).Draw(t, "packets") {
			sent = append(sent, drawn(t, raw, 2000))
		}
		reserve := 2
		if raw {
			reserve = 0
		}
		b, fit := kernelBlock(size, reserve, sent)
		if fit == 0 {
			t.Fatal("the smallest block has no room for a packet")
		}
		r := rewriter{ethernet: !raw, snap: uint32(rapid.SampledFrom([]int{pcapng.MaxCapLen, 60, 3}).Draw(t, "snap")), align: uint32(rapid.SampledFrom([]int{4, 512, 4096}).Draw(t, "align"))}
		most := rapid.SampledFrom([]int{1 << 20, 1, 7}).Draw(t, "most")
		want := min(fit, most)
		var about layout.Block
		if err := r.rewrite(b, uint64(most), &about); err != nil {
			t.Fatal(err)
		}
		if b[blockStatus]&unix.TP_STATUS_USER == 0 {
			t.Fatalf("the block went back to the kernel")
		}
		if about.Head < pcapng.MinMarkLen || about.Head > layout.MaxRingHead || about.Length%r.align != 0 && about.Length != uint32(size) || int(about.Packets) != want || r.beyond != uint64(fit-want) {
			t.Fatalf("%+v of %d packets, %d beyond", about, fit, r.beyond)
		}
		got := records(t, b, &about)
		if len(got) != want {
			t.Fatalf("%d records of %d packets", len(got), want)
		}
		for i, g := range got {
			data, length := sent[i].whole(r.snap)
			iface := uint32(0)
			if sent[i].status&unix.TP_STATUS_TS_RAW_HARDWARE != 0 {
				iface = 1
			}
			if !bytes.Equal(g.data, data) || g.length != length || g.at != sent[i].at || g.iface != iface {
				t.Fatalf("record %d: %d of %d bytes at %d of interface %d; want %d of %d at %d", i, len(g.data), g.length, g.at, g.iface, len(data), length, sent[i].at)
			}
			if direction := g.flags & 3; (direction == 2) != (sent[i].kind == unix.PACKET_OUTGOING) || direction == 0 {
				t.Fatalf("record %d of kind %d has flags %#x", i, sent[i].kind, g.flags)
			}
			if s := sent[i].status; (g.flags&checksumNotReady != 0) != (s&unix.TP_STATUS_CSUMNOTREADY != 0) || (g.flags&segmentsFollow != 0) != (s&unix.TP_STATUS_GSO_TCP != 0) {
				t.Fatalf("record %d of status %#x has flags %#x", i, s, g.flags)
			}
		}
	})
}

// TestRewriteFullBlock: the last record of a block has its flags even where the kernel leaves only eight bytes.
func TestRewriteFullBlock(t *testing.T) {
	small := arrived{data: make([]byte, 60), length: 60, maclen: 14, tag: 5, tagType: 0x8100}
	const smallLen = (84 + 60 + 7) &^ 7
	for short := range 40 {
		for _, before := range []int{0, 2} {
			room := 4096 - firstPacket - 84 - 8 - short - before*smallLen
			last := arrived{data: bytes.Repeat([]byte{2}, room), length: uint32(room), maclen: 14, tag: -1, kind: unix.PACKET_OUTGOING}
			all := append(slices.Repeat([]arrived{small}, before), last)
			b, fit := kernelBlock(4096, 2, all)
			if fit != len(all) {
				t.Fatalf("%d of %d fit", fit, len(all))
			}
			r, about := rewriter{ethernet: true, snap: pcapng.MaxCapLen, align: 4096}, layout.Block{}
			if err := r.rewrite(b, 10, &about); err != nil {
				t.Fatalf("short of %d, %d before: %v", short, before, err)
			}
			got := records(t, b, &about)
			if g := got[len(got)-1]; !bytes.Equal(g.data, last.data) || g.flags&3 != 2 || about.Length != 4096 {
				t.Errorf("short of %d, %d before: %d bytes with flags %#x, block of %d", short, before, len(g.data), g.flags, about.Length)
			}
		}
	}
}

// TestRewriteHostile: no header makes the worker read or write outside of the block.
func TestRewriteHostile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, _ := kernelBlock(4096, 2, []arrived{drawn(t, false, 300), drawn(t, false, 300), drawn(t, false, 300)})
		for range rapid.IntRange(1, 8).Draw(t, "changes") {
			at := rapid.IntRange(blockPackets, 700).Draw(t, "at")
			native.PutUint32(b[at:], rapid.SampledFrom([]uint32{0, 1, 48, 4095, 4096, 1 << 16, 1<<32 - 1, rapid.Uint32().Draw(t, "value")}).Draw(t, "word"))
		}
		guard := append(b, bytes.Repeat([]byte{poison}, 256)...)
		r, about := rewriter{ethernet: true, snap: pcapng.MaxCapLen, align: 512}, layout.Block{}
		if n := native.Uint32(b[blockPackets:]); n > 1000 {
			native.PutUint32(guard[blockPackets:], n%1000)
		}
		if err := r.rewrite(guard[:4096:4096], 1<<20, &about); err != nil && !errors.Is(err, errRing) {
			t.Fatal(err)
		}
		if !bytes.Equal(guard[4096:], bytes.Repeat([]byte{poison}, 256)) {
			t.Fatal("it writes behind the block")
		}
	})
}

// TestRewriteAllocates: making records takes no memory.
func TestRewriteAllocates(t *testing.T) {
	var all []arrived
	for range 100 {
		all = append(all, arrived{data: make([]byte, 60), length: 60, maclen: 14, tag: 7, tagType: 0x8100})
	}
	made, _ := kernelBlock(1<<16, 2, all)
	b, r, about := bytes.Clone(made), rewriter{ethernet: true, snap: pcapng.MaxCapLen, align: 512}, layout.Block{}
	if n := testing.AllocsPerRun(100, func() {
		copy(b, made)
		testenv.Must(t, r.rewrite(b, 1<<20, &about))
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkRewrite is the cost of a packet.
func BenchmarkRewrite(bench *testing.B) {
	for _, size := range []int{64, 1024} {
		bench.Run(map[int]string{64: "64", 1024: "1024"}[size], func(bench *testing.B) {
			var all []arrived
			for range 1 << 14 {
				all = append(all, arrived{data: make([]byte, size), length: uint32(size), maclen: 14, tag: -1})
			}
			made, fit := kernelBlock(1<<20, 2, all)
			b, r, about := bytes.Clone(made), rewriter{ethernet: true, snap: pcapng.MaxCapLen, align: 512}, layout.Block{}
			packets := 0
			for bench.Loop() {
				bench.StopTimer()
				copy(b, made)
				bench.StartTimer()
				testenv.Must(bench, r.rewrite(b, 1<<20, &about))
				packets += fit
			}
			bench.ReportMetric(float64(bench.Elapsed().Nanoseconds())/float64(packets), "ns/packet")
		})
	}
}
