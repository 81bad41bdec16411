package flows

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// windowFrames and windowCard bound the frames in flight while a test sends: half a ring, of a veth pair or
// of a card.
const windowFrames, windowCard = 1000, 100

// send sends frames to a flow, some at a time. It waits each time until the worker has taken them, so that no
// packet is lost on a busy machine.
func (l *lab) send(t testing.TB, f *Flow, frames [][]byte) {
	t.Helper()
	sender := testenv.NewSender(t, &l.A)
	before, sent := f.Status().Offered, 0
	for len(frames) > 0 {
		n, room := 0, windowFrames
		if l.IsCard() {
			room = windowCard
		}
		for n < len(frames) && room > 0 {
			room -= 1 + len(frames[n])/3556
			n++
		}
		if got := sender.SendAll(t, frames[:n], testenv.SendOptions{}); got != n {
			t.Fatalf("the interface took %d of %d packets", got, n)
		}
		frames, sent = frames[n:], sent+n
		testenv.Wait(t, 20*time.Second, "the worker to take what was sent", func() bool {
			s := f.Status()
			return s.Offered >= before+uint64(sent) && s.Waiting == 0
		})
	}
}

// samePackets compares two lists of packets.
func samePackets(t testing.TB, what string, got, want [][]byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d packets, want %d", what, len(got), len(want))
		return
	}
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			t.Errorf("%s: packet %d is\n%x, want\n%x", what, i, got[i], want[i])
			return
		}
	}
}

// Block types of pcapng, and ours, as the draft numbers them.
const (
	typeInterface  = 1
	typeStatistics = 5
	typePacket     = 6
	typeSection    = 0x0a0d0d0a
)

// block is one block of a capture file.
type block struct {
	kind   uint32
	offset int64
	body   []byte // between the two lengths
}

// cutBlocks splits a stopped capture into its blocks, with a parser of its own. The test fails if a length
// does not fit or a byte of padding is not zero.
func cutBlocks(t testing.TB, raw []byte) (all []block) {
	t.Helper()
	le := binary.LittleEndian
	for at := 0; at < len(raw); {
		rest := raw[at:]
		if len(rest) < 12 {
			t.Fatalf("offset %d: %d bytes are left over", at, len(rest))
		}
		n := int(le.Uint32(rest[4:]))
		if n < 12 || n%4 != 0 || n > len(rest) || int(le.Uint32(rest[n-4:])) != n {
			t.Fatalf("offset %d: block %#x of length %d does not fit", at, le.Uint32(rest), n)
		}
		b := block{le.Uint32(rest), int64(at), rest[8 : n-4]}
		b.check(t)
		all = append(all, b)
		at += n
	}
	return all
}

// check checks that the padding in a block is zero.
func (b *block) check(t testing.TB) {
	t.Helper()
	switch b.kind {
	case typeSection, typeInterface, typeStatistics:
	case typePacket:
		b.checkPacket(t)
	default:
		b.checkMark(t)
	}
}

// checkMark checks that a mark has zeros behind its fields. The fields follow the magic number, up to byte 84
// of the block; padding blocks have none.
func (b *block) checkMark(t testing.TB) {
	t.Helper()
	const magic, fields = 4, 84 - 8
	if b.kind>>31 == 0 {
		t.Fatalf("offset %d: block of unexpected type %#x", b.offset, b.kind)
	}
	from := magic
	if len(b.body) >= fields && !allZero(b.body[magic:magic+4]) {
		from = fields
	}
	if !allZero(b.body[min(from, len(b.body)):]) {
		t.Fatalf("offset %d: padding holds something: %x", b.offset, b.body[from:])
	}
}

// checkPacket checks that zeros follow the packet up to the next multiple of four. After them there is at
// most one option of ours, full of zeros.
func (b *block) checkPacket(t testing.TB) {
	t.Helper()
	const header, optionHeader, number = 20, 4, 4
	length := int(binary.LittleEndian.Uint32(b.body[12:]))
	if original := int(binary.LittleEndian.Uint32(b.body[16:])); length != original || header+length > len(b.body) {
		t.Fatalf("offset %d: a packet of %d bytes, captured %d, in a block of %d", b.offset, original, length, len(b.body))
	}
	rest := b.body[header+length:]
	pad := -length & 3
	if !allZero(rest[:pad]) {
		t.Fatalf("offset %d: the packet is padded with %x", b.offset, rest[:pad])
	}
	rest = rest[pad:]
	if len(rest) >= 8 && binary.LittleEndian.Uint32(rest) == 4<<16|2 { // the packet's flags come before it
		rest = rest[8:]
	}
	if len(rest) > optionHeader {
		if len(rest) > optionHeader+number {
			rest = rest[number:]
		}
		rest = rest[optionHeader:]
	}
	if !allZero(rest) {
		t.Fatalf("offset %d: behind the packet of %d bytes is %x", b.offset, length, rest)
	}
}

func allZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// blocksOf reads files and splits them into blocks.
func blocksOf(t testing.TB, files ...string) (all []block) {
	t.Helper()
	for _, name := range files {
		raw, err := os.ReadFile(name)
		testenv.Must(t, err)
		all = append(all, cutBlocks(t, raw)...)
	}
	return all
}
