package transport

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// clean checks that no packet was repeated.
func (w *world) clean() {
	w.t.Helper()
	for _, e := range w.ends {
		for c := Counter(0); c < Counters; c++ {
			switch c {
			case PacketsSent, PacketsReceived, AcksSent, CopiedBytes, LoanedFrames:
			default:
				if n := e.Count(c); n != 0 {
					w.t.Errorf("end %d on a clean link: %v is %d", e.index, c, n)
				}
			}
		}
		for d := Drop(0); d < Drops; d++ {
			if n := e.Dropped(d); n != 0 {
				w.t.Errorf("end %d on a clean link: %d packets dropped: %v", e.index, n, d)
			}
		}
	}
}

func TestWriteAndRead(t *testing.T) {
	for _, mtu := range []rdma.MTU{rdma.MTU256, rdma.MTU1024, rdma.MTU4096} {
		t.Run(fmt.Sprint(mtu), func(t *testing.T) {
			w := newWorld(t, 1, Config{MTU: mtu})
			a, b := w.pair(options{mtu: mtu, psn: 0xfffff0})
			for i, n := range sizes {
				w.writeOne(a, b, uint64(i+1), n)
				w.readOne(a, uint64(i+1), n)
			}
			w.clean()
		})
	}
}

// writeOne sends a WRITE with immediate data to an odd address.
func (w *world) writeOne(a, b *QueuePair, id uint64, n int) {
	t, from, to := w.t, w.ends[0], w.ends[1]
	want := from.fill(0, n, byte(id))
	clear(to.memory(0, 300000))
	receiveInto(t, b, id+100)
	send(t, a, rdma.SendRequest{ID: id, Op: rdma.WriteImmediate, Immediate: [4]byte{1}, RemoteAddr: to.base + 13, RKey: to.key}, from.sge(0, n/3), from.sge(n/3, n-n/3))
	w.run(time.Millisecond)
	from.want(t, fmt.Sprintf("%d WRITE", id))
	to.want(t, fmt.Sprintf("%d receive of WRITE with immediate %d imm 1000000", id+100, n))
	same(t, fmt.Sprint("WRITE of ", n), to.memory(13, n), want)
	same(t, "in front of it and behind", append(to.memory(0, 13), to.memory(13+n, 1000)...), make([]byte, 1013))
}

func (w *world) readOne(a *QueuePair, id uint64, n int) {
	t, from, to := w.t, w.ends[0], w.ends[1]
	want := to.fill(500000, n, byte(id))
	clear(from.memory(0, 300000))
	send(t, a, rdma.SendRequest{ID: id, Op: rdma.Read, RemoteAddr: to.base + 500000, RKey: to.key}, from.sge(0, n/3), from.sge(n/3, n-n/3))
	w.run(time.Millisecond)
	from.want(t, fmt.Sprintf("%d READ", id))
	same(t, fmt.Sprint("READ of ", n), from.memory(0, n), want)
	same(t, "behind it", from.memory(n, 1000), make([]byte, 1000))
}

func TestAtomics(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a, _ := w.pair(options{})
	from, to := w.ends[0], w.ends[1]
	word := to.memory(64, 8)
	binary.NativeEndian.PutUint64(word, 40)
	at := rdma.SendRequest{RemoteAddr: to.base + 64, RKey: to.key}
	for i, c := range []struct {
		op                       rdma.Op
		compare, swap, was, then uint64
	}{{rdma.FetchAdd, 2, 0, 40, 42}, {rdma.CompareSwap, 42, 7, 42, 7}, {rdma.CompareSwap, 42, 9, 7, 7}, {rdma.FetchAdd, ^uint64(0), 0, 7, 6}} {
		r := at
		r.ID, r.Op, r.Compare, r.Swap = uint64(i), c.op, c.compare, c.swap
		send(t, a, r, from.sge(128, 4), from.sge(256, 4))
		w.run(time.Millisecond)
		got := binary.NativeEndian.Uint64(append(from.memory(128, 4), from.memory(256, 4)...))
		if then := binary.NativeEndian.Uint64(word); got != c.was || then != c.then {
			t.Errorf("%v: was %d and is %d, want %d and %d", c.op, got, then, c.was, c.then)
		}
	}
	from.want(t, "0 fetch-and-add", "1 compare-and-swap", "2 compare-and-swap", "3 fetch-and-add")
	w.clean()
}

// TestMixed: requests of all kinds, posted at once, arrive intact, also without completions and
// with inline data.
func TestMixed(t *testing.T) {
	w := newWorld(t, 1, Config{Window: 8})
	a, b := w.pair(options{depth: 64, inline: 64, quiet: true})
	from, to := w.ends[0], w.ends[1]
	wantRead := to.fill(100000, 5000, 3)
	sent := from.fill(0, 2000, 9)
	for i := range 10 {
		receiveInto(t, b, uint64(200+i), to.sge(i*2000, 2000))
	}
	for i := range 10 {
		send(t, a, rdma.SendRequest{ID: 1, Op: rdma.Send}, from.sge(0, 2000))
		send(t, a, rdma.SendRequest{ID: 2, Op: rdma.Read, RemoteAddr: to.base + 100000, RKey: to.key}, from.sge(10000+i*5000, 5000))
		send(t, a, rdma.SendRequest{ID: 3, Op: rdma.FetchAdd, RemoteAddr: to.base + 200000, RKey: to.key, Compare: 1}, from.sge(3000, 8))
		send(t, a, rdma.SendRequest{ID: 4, Op: rdma.Write, Flags: rdma.Inline, RemoteAddr: to.base + 300000, RKey: to.key}, from.sge(100, 50))
	}
	send(t, a, rdma.SendRequest{ID: 5, Op: rdma.Write, Flags: rdma.Signaled | rdma.Fence})
	w.run(10 * time.Millisecond)
	from.want(t, "5 WRITE")
	for i := range 10 {
		same(t, "SEND", to.memory(i*2000, 2000), sent)
		same(t, "READ", from.memory(10000+i*5000, 5000), wantRead)
	}
	same(t, "inline WRITE", to.memory(300000, 50), sent[100:150])
	if n := binary.NativeEndian.Uint64(to.memory(200000, 8)); n != 10 {
		t.Errorf("added %d times, want 10", n)
	}
	if n := from.Count(CopiedBytes); n != 10*(5000+8+50) { // READs, results of atomics, inline data
		t.Errorf("%d bytes were copied", n)
	}
	w.clean()
}

// TestReadsOutstanding: the requester has at most MaxReads READs outstanding.
func TestReadsOutstanding(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a, _ := w.pair(options{tweak: func(a *rdma.Attributes) { a.MaxReads = 2 }})
	from, to := w.ends[0], w.ends[1]
	open, most := 0, 0
	w.link.each = func(_ int, h *wire.Header) bool {
		switch {
		case h.Opcode == wire.RCReadRequest:
			open++
			most = max(most, open)
		case h.Opcode == wire.RCReadResponseLast:
			open--
		}
		return false
	}
	for i := range 6 {
		send(t, a, rdma.SendRequest{ID: uint64(i), Op: rdma.Read, RemoteAddr: to.base, RKey: to.key}, from.sge(0, 2048))
	}
	w.run(time.Millisecond)
	from.want(t, "0 READ", "1 READ", "2 READ", "3 READ", "4 READ", "5 READ")
	if most != 2 {
		t.Errorf("%d READs were outstanding at once, want 2", most)
	}
}

// TestFence: a WRITE waits for the READ before it only if it has the Fence flag.
func TestFence(t *testing.T) {
	for _, fence := range []rdma.Flags{0, rdma.Fence} {
		w := newWorld(t, 1, Config{})
		a, _ := w.pair(options{})
		from, to := w.ends[0], w.ends[1]
		var order []wire.Kind
		w.link.each = func(_ int, h *wire.Header) bool {
			order = append(order, h.Opcode.Kind())
			return false
		}
		send(t, a, rdma.SendRequest{Op: rdma.Read, RemoteAddr: to.base, RKey: to.key}, from.sge(0, 8))
		send(t, a, rdma.SendRequest{Op: rdma.Write, Flags: fence, RemoteAddr: to.base + 64, RKey: to.key}, from.sge(64, 8))
		w.run(time.Millisecond)
		if waits := order[1] == wire.ReadResponse; waits != (fence != 0) {
			t.Errorf("with flags %d the packets went %v", fence, order)
		}
		from.want(t, "0 READ", "0 WRITE")
	}
}

// TestAnswerBeforeAcknowledgement: if the receiver answers at once, its message leaves before the
// ACK.
func TestAnswerBeforeAcknowledgement(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a, b := w.pair(options{})
	from, to := w.ends[0], w.ends[1]
	receiveInto(t, a, 1, from.sge(0, 64))
	receiveInto(t, b, 1, to.sge(0, 64))
	w.between = func(e *end) {
		if e.poll(); e == to && len(e.done) == 1 && e.done[0].Kind == rdma.Received {
			e.done = nil
			send(t, b, rdma.SendRequest{ID: 2, Op: rdma.Send}, to.sge(0, 64))
		}
	}
	var order []wire.Opcode
	w.link.each = func(from int, h *wire.Header) bool {
		if from == 1 {
			order = append(order, h.Opcode)
		}
		return false
	}
	send(t, a, rdma.SendRequest{ID: 2, Op: rdma.Send}, from.sge(0, 64))
	w.run(time.Millisecond)
	if len(order) != 2 || order[0] != wire.RCSendOnly || order[1] != wire.RCAcknowledge {
		t.Errorf("the receiver sent %v, want its message and then the acknowledgement", order)
	}
}

// TestCoalesced: messages that arrive in one batch get one ACK.
func TestCoalesced(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a, _ := w.pair(options{depth: 32})
	from, to := w.ends[0], w.ends[1]
	for i := range 32 {
		send(t, a, rdma.SendRequest{ID: uint64(i), Op: rdma.Write, RemoteAddr: to.base, RKey: to.key}, from.sge(0, 64))
	}
	w.run(time.Millisecond)
	if n := to.Count(AcksSent); n != 1 {
		t.Errorf("32 messages in one batch had %d acknowledgements, want 1", n)
	}
	if n := len(from.done); n != 32 {
		t.Errorf("%d of 32 completed", n)
	}
}
