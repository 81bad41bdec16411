package wire

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

var update = flag.Bool("update", false, "write testdata/opcodes.pcap anew; opcodes.csv is to be made of it then")

// tagged has the VLAN tags that the packets of the second capture use in rotation.
var tagged = [][MaxTags]Tag{{}, {{0x8100, 5}}, {{0x88a8, 7}, {0x8100, 0x6009}}}

// everyOpcode returns a packet of every opcode over IPv4 and IPv6. No two fields have the same
// value.
func everyOpcode(t *testing.T) (packets [][]byte) {
	for i := range 512 {
		o := Opcode(i / 2)
		if !o.Known() {
			continue
		}
		path := benchPath(i%2 == 1)
		path.Tags, path.TrafficClass, path.HopLimit = tagged[len(packets)%len(tagged)], uint8(i), uint8(64+i/2)
		path.SourcePort = softSourcePort(uint32(i))
		if i%2 == 1 {
			path.FlowLabel = 0x12345 + uint32(i)
		}
		template, err := NewTemplate(path)
		testenv.Must(t, err)
		frame := make([]byte, 512)
		packets = append(packets, frame[:send(frame, &template, uint16(i*257), distinct(o), somePayload(o, i))])
	}
	return packets
}

// distinct returns a header whose fields differ from each other.
func distinct(o Opcode) *Header {
	u := uint32(o)
	return &Header{
		Opcode: o, Solicited: u&1 != 0, MigReq: u&2 != 0, AckReq: u&4 != 0, FECN: u&8 != 0, BECN: u&16 != 0 || o == CNP,
		PKey: 0x8001 + uint16(u), DestQPN: 0xfeda00 + u, PSN: MakePSN(0xabcd00 + u), Reserved: Reserved{uint8(u) & 0x3f, uint8(u) & 0x7f, uint8(u)},
		VA: 0x0123456789abcd00 + uint64(u), RKey: 0x13579b00 + u, DMALength: 0x2468ac00 + u, SwapAdd: 0x1122334455667700 + uint64(u),
		Compare: 0x99aabbccddeeff00 + uint64(u), Syndrome: NAKSequence + Syndrome(u)%5, MSN: 0x9a8b00 + u, Original: 0x0fedcba987654300 + uint64(u),
		Immediate: [4]byte{1, 2, 3, uint8(u)}, Invalidate: 0x77665500 + u, QKey: 0x80818200 + u, SourceQPN: 0x414200 + u,
	}
}

// somePayload returns a payload with the length that the opcode requires on a path with an MTU of
// 256 bytes.
func somePayload(o Opcode, i int) []byte {
	switch {
	case !o.CarriesPayload():
		return nil
	case o == CNP:
		return make([]byte, CNPBytes)
	case !o.Ends():
		return bytes.Repeat([]byte{0xa5}, 256)
	}
	return bytes.Repeat([]byte{0x5a}, 1+i%23)
}

// TestEveryOpcode: an independent decoder reads from our packets the values that we wrote.
func TestEveryOpcode(t *testing.T) {
	const name = "testdata/opcodes.pcap"
	want := writePcap(everyOpcode(t))
	if *update {
		testenv.Must(t, os.WriteFile(name, want, 0o644))
	}
	if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s is not what is written now (%v)", name, err)
	}
	for i, d := range checkCapture(t, name, "testdata/opcodes.csv") {
		h := distinct(d.Opcode)
		h.Pad = d.Pad
		if d.Header != *present(h) {
			t.Errorf("packet %d:\n%+v, want\n%+v", i+1, d.Header, *present(h))
		}
	}
}

// present clears the fields that the opcode does not have.
func present(h *Header) *Header {
	o, w := h.Opcode, *h
	if !table[o].has(deth) {
		w.QKey, w.SourceQPN, w.Reserved.DETH = 0, 0, 0
	}
	if !o.HasRETH() {
		w.DMALength = 0
	}
	if !o.HasRETH() && !table[o].has(atomicETH) {
		w.VA, w.RKey = 0, 0
	}
	if !table[o].has(atomicETH) {
		w.SwapAdd, w.Compare = 0, 0
	}
	if !o.HasAETH() {
		w.Syndrome, w.MSN = 0, 0
	}
	if !table[o].has(atomicAck) {
		w.Original = 0
	}
	if !o.HasImmediate() {
		w.Immediate = [4]byte{}
	}
	if !o.HasInvalidate() {
		w.Invalidate = 0
	}
	return &w
}
