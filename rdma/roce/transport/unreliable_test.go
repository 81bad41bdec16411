package transport

import (
	"fmt"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

func TestUnreliable(t *testing.T) {
	w := newWorld(t, 1, Config{MTU: rdma.MTU4096})
	a, b := w.pair(options{transport: rdma.UC, mtu: rdma.MTU4096, psn: mask24})
	for i, n := range sizes {
		w.sendOne(a, b, uint64(i+1), n)
		w.writeOne(a, b, uint64(i+1), n)
	}
	w.clean()
}

// TestUnreliableLoss: if a packet of a UC message is lost, the receiver loses only that message and
// keeps its receive for the next one.
func TestUnreliableLoss(t *testing.T) {
	for _, o := range []wire.Opcode{wire.UCSendFirst, wire.UCSendMiddle, wire.UCSendLast} {
		for _, loans := range []int{0, 20} {
			t.Run(fmt.Sprint(o, loans), func(t *testing.T) {
				w := newWorld(t, 1, Config{})
				a, b := w.pair(options{transport: rdma.UC, loans: loans})
				w.loseOnce(o, 2)
				from, to := w.ends[0], w.ends[1]
				for i := range 3 {
					if loans == 0 {
						receiveInto(t, b, uint64(i+10), to.sge(i*5000, 5000))
					}
					from.fill(i*4000, 3000, byte(i))
					send(t, a, rdma.SendRequest{ID: uint64(i), Op: rdma.Send}, from.sge(i*4000, 3000))
				}
				w.run(time.Second)
				from.want(t, "0 SEND", "1 SEND", "2 SEND")
				if len(to.done) != 2 || to.done[0].Length != 3000 || to.done[1].Length != 3000 {
					t.Fatalf("%d messages came, want 2", len(to.done))
				}
				if loans == 0 {
					to.want(t, "10 receive 3000", "11 receive 3000")
					same(t, "first", to.memory(0, 3000), from.memory(0, 3000))
					same(t, "third", to.memory(5000, 3000), from.memory(8000, 3000))
				}
				if to.Dropped(BadPSN) == 0 && o != wire.UCSendLast {
					t.Error("nothing was counted as dropped")
				}
				if b.State() != rdma.ReadyToSend {
					t.Errorf("the receiver is in %v", b.State())
				}
			})
		}
	}
}

// TestUnreliableRefused: a UC receiver drops messages that it cannot accept, and accepts later
// ones.
func TestUnreliableRefused(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a, b := w.pair(options{transport: rdma.UC})
	from, to := w.ends[0], w.ends[1]
	send(t, a, rdma.SendRequest{ID: 1, Op: rdma.Send}) // without a receive
	send(t, a, rdma.SendRequest{ID: 2, Op: rdma.Write, RemoteAddr: to.base, RKey: to.key + 1}, from.sge(0, 4000))
	w.run(time.Millisecond)
	receiveInto(t, b, 9, to.sge(0, 10))
	send(t, a, rdma.SendRequest{ID: 3, Op: rdma.Send}, from.sge(0, 11)) // too long
	send(t, a, rdma.SendRequest{ID: 4, Op: rdma.Send}, from.sge(0, 10))
	w.run(time.Millisecond)
	from.want(t, "1 SEND", "2 WRITE", "3 SEND", "4 SEND")
	to.want(t, "9 receive 10")
	for d, n := range map[Drop]uint64{NoReceive: 1, NoAccess: 1, TooLong: 1} {
		if to.Dropped(d) != n {
			t.Errorf("%d dropped: %v, want %d", to.Dropped(d), d, n)
		}
	}
}

// TestSendError: a UC queue pair whose send failed still receives, and Modify can take it back to
// RTS.
func TestSendError(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a, b := w.pair(options{transport: rdma.UC})
	from := w.ends[0]
	receiveInto(t, a, 9, from.sge(0, 10))
	send(t, a, rdma.SendRequest{ID: 1, Op: rdma.Write})
	send(t, a, rdma.SendRequest{ID: 2, Op: rdma.Send}, rdma.SGE{Addr: from.base, Length: 4, LKey: 3})
	send(t, a, rdma.SendRequest{ID: 3, Op: rdma.Send})
	w.run(time.Millisecond)
	from.want(t, "1 WRITE", "2 IBV_WC_LOC_PROT_ERR", "3 IBV_WC_WR_FLUSH_ERR")
	send(t, a, rdma.SendRequest{ID: 4, Op: rdma.Send})
	send(t, b, rdma.SendRequest{ID: 5, Op: rdma.Send})
	w.run(time.Millisecond)
	from.want(t, "4 IBV_WC_WR_FLUSH_ERR", "9 receive 0")
	if a.State() != rdma.SendError {
		t.Errorf("state %v", a.State())
	}
	must(t, a.Modify(rdma.Attributes{State: rdma.ReadyToSend}, rdma.MaskState, 0))
	send(t, a, rdma.SendRequest{ID: 6, Op: rdma.Write})
	w.run(time.Millisecond)
	from.want(t, "6 WRITE")
}

// TestTransmitted: a UC request completes once all of its packets have left.
func TestTransmitted(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a, _ := w.pair(options{transport: rdma.UC})
	e := w.ends[0]
	send(t, a, rdma.SendRequest{ID: 1, Op: rdma.Write}, e.sge(0, 3000))
	send(t, a, rdma.SendRequest{ID: 2, Op: rdma.Write}, e.sge(0, 3000))
	if n := e.Progress(w.now, e.out[:]); n != 6 {
		t.Fatalf("%d packets, want 6", n)
	}
	for _, step := range []struct{ left, done int }{{2, 0}, {1, 1}, {2, 1}, {1, 2}} {
		e.Transmitted(step.left)
		if e.poll(); len(e.done) != step.done {
			t.Errorf("%d are complete, want %d", len(e.done), step.done)
		}
	}
}
