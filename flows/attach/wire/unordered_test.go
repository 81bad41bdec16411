package wire

import (
	"encoding/binary"
	"testing"
)

// arrive places bytes of a slot as they come by RDMA WRITE, in any order.
func arrive(to, from *Channel, n uint64, begin, end int) {
	copy(to.at(n)[begin:end], from.at(n)[begin:end])
}

// TestUnorderedSlots: of a ring that is written by RDMA WRITE a reader believes no slot whose bytes have come in part, in
// whatever order, until what was published says that it never comes. Without the check of the checksum it would read a
// message that is half an older one.
func TestUnorderedSlots(t *testing.T) {
	const slots, slot = 16, 128
	w := NewChannel(bytesOf(make([]uint64, ChannelLen(slots, slot)/8)), slots, slot, Sums)
	b := bytesOf(make([]uint64, ChannelLen(slots, slot)/8))
	r := NewChannel(b, slots, slot, Sums|Unordered)
	var m [slot - SlotHeader]byte
	var got [slot]byte
	put := func() uint64 {
		n := w.Last() + 1
		for i := 0; i < len(m); i += 8 {
			binary.NativeEndian.PutUint64(m[i:], n)
		}
		return w.Put(m[:])
	}
	for range slots { // what lies there before
		n := put()
		arrive(r, w, n, 0, slot)
		if length, f := r.Get(n, got[:]); f != Read || length != len(m) {
			t.Fatalf("message %d: %d bytes, %v", n, length, f)
		}
	}
	r.SetLast(slots)
	for cut := 8; cut < slot; cut += 8 {
		n := put()
		arrive(r, w, n, 0, cut) // the sequence comes first
		if _, f := r.Get(n, got[:]); f != NotYet {
			t.Fatalf("%d bytes of message %d have come: %v", cut, n, f)
		}
		arrive(r, w, n, cut, slot)
		if _, f := r.Get(n, got[:]); f != Read || binary.NativeEndian.Uint64(got[len(m)-8:]) != n {
			t.Fatalf("message %d has come: %v", n, f)
		}
		n = put()
		arrive(r, w, n, 8, cut+8) // the sequence comes last
		if _, f := r.Get(n, got[:]); f != NotYet {
			t.Fatalf("message %d has no sequence: %v", n, f)
		}
		arrive(r, w, n, 0, slot)
	}
	n := put()
	arrive(r, w, n, 0, slot/2)
	r.SetLast(n) // no more of it comes
	if _, f := r.Get(n, got[:]); f != Passed {
		t.Errorf("half of message %d has come, and nothing more will: %v", n, f)
	}
	if _, f := r.Get(n+1, got[:]); f != NotYet {
		t.Errorf("message %d: %v", n+1, f)
	}
}

// TestGap: messages that were skipped are lost as soon as a later one is published, and none of an older round is taken
// for them.
func TestGap(t *testing.T) {
	const slots, slot = 16, 64
	w := NewChannel(bytesOf(make([]uint64, ChannelLen(slots, slot)/8)), slots, slot, 0)
	for range 3 {
		w.Put([]byte("abc"))
	}
	w.SetLast(9)
	w.Put([]byte("def"))
	var got [slot]byte
	for n, want := range map[uint64]Found{3: Read, 4: Passed, 9: Passed, 10: Read, 11: NotYet} {
		if _, f := w.Get(n, got[:]); f != want {
			t.Errorf("message %d: %v instead of %v", n, f, want)
		}
	}
	if first := w.First(10); first != 10 {
		t.Errorf("the first message without a gap before the end is %d", first)
	}
	w.Forget()
	if _, f := w.Get(10, got[:]); f != Passed {
		t.Errorf("a forgotten message: %v", f)
	}
}

// TestSettle: a message that its writer has written and not announced when it was killed keeps its sequence.
func TestSettle(t *testing.T) {
	w := NewChannel(bytesOf(make([]uint64, ChannelLen(16, 64)/8)), 16, 64, 0)
	w.Put([]byte("a"))
	w.Put([]byte("b"))
	w.SetLast(1)
	w.Settle()
	w.Settle()
	if w.Last() != 2 {
		t.Errorf("the last message is %d", w.Last())
	}
}

// TestChannelAllocates: writing and reading a message with its checksum allocates nothing.
func TestChannelAllocates(t *testing.T) {
	c := NewChannel(bytesOf(make([]uint64, ChannelLen(16, 256)/8)), 16, 256, Sums|Unordered)
	m, got := make([]byte, 200), make([]byte, 240)
	if n := testing.AllocsPerRun(100, func() {
		n := c.Put(m)
		if _, ok := c.Look(n); !ok {
			t.Fatal("it is not there")
		}
		if _, f := c.Get(n, got); f != Read {
			t.Fatal(f)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
