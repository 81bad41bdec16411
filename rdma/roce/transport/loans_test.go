package transport

import (
	"fmt"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/umem"
)

// TestLoans: the program gets messages in the frames that they arrived in, and no byte is copied.
func TestLoans(t *testing.T) {
	w := newWorld(t, 1, Config{MTU: rdma.MTU4096})
	a, b := w.pair(options{loans: 64, mtu: rdma.MTU4096})
	from, to := w.ends[0], w.ends[1]
	for i, n := range []int{0, 1, 4000, 4096, 4097, 100000} {
		want := from.fill(0, n, byte(i))
		send(t, a, rdma.SendRequest{ID: 1, Op: rdma.SendImmediate, Immediate: [4]byte{1}}, from.sge(0, n))
		w.run(time.Millisecond)
		from.want(t, "1 SEND")
		var fs [64]umem.Frame
		k := b.Loaned(fs[:])
		var got []byte
		for j, f := range fs[:k] {
			got = append(got, to.region.Bytes(f)...)
			if f.Continues() != (j < k-1) {
				t.Errorf("frame %d of %d: more is %v", j, k, f.Continues())
			}
		}
		same(t, fmt.Sprint(n, " bytes"), got, want)
		if c := to.done[0]; len(to.done) != 1 || len(got) != n || int(c.Length) != n || n > 0 && c.ID != fs[0].Addr {
			t.Errorf("%d bytes came as %v, in %d", n, show(&c), len(got))
		}
		to.done = nil
		b.Return(fs[:k])
		w.run(time.Millisecond)
	}
	if n := to.Count(CopiedBytes); n != 0 {
		t.Errorf("%d bytes were copied", n)
	}
	if to.lent.Held() != 0 {
		t.Errorf("%d frames did not come back", to.lent.Held())
	}
}

// TestLoansExhausted: when all frames are on loan, the receiver sends RNR NAKs until the program
// returns some.
func TestLoansExhausted(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a, b := w.pair(options{loans: 3, tweak: func(a *rdma.Attributes) { a.MinRNRTimer = 10 }})
	from, to := w.ends[0], w.ends[1]
	for i := range 4 {
		send(t, a, rdma.SendRequest{ID: uint64(i), Op: rdma.Send}, from.sge(0, 100))
	}
	w.run(2 * time.Millisecond)
	from.want(t, "0 SEND", "1 SEND", "2 SEND")
	if to.Count(RNRSent) == 0 || to.lent.Held() != 3 {
		t.Errorf("%d RNR NAKs, %d frames lent", to.Count(RNRSent), to.lent.Held())
	}
	var fs [3]umem.Frame
	if n := b.Loaned(fs[:]); n != 3 {
		t.Fatalf("%d frames, want 3", n)
	}
	b.Return(fs[1:2])
	w.run(2 * time.Millisecond)
	from.want(t, "3 SEND")
	b.Return([]umem.Frame{fs[2], fs[0]})
	if n := b.Loaned(fs[:]); n != 1 {
		t.Fatalf("%d frames, want 1", n)
	}
	defer func() {
		if recover() == nil {
			t.Error("four frames came back of three")
		}
		b.Return(fs[:1])
		w.run(time.Millisecond)
	}()
	b.Return(fs[:2])
}

// TestLoansTooLong: the receiver refuses a message that needs more frames than it may ever lend.
func TestLoansTooLong(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a, b := w.pair(options{loans: 3})
	from, to := w.ends[0], w.ends[1]
	send(t, a, rdma.SendRequest{ID: 1, Op: rdma.Send}, from.sge(0, 4000))
	w.run(time.Second)
	from.want(t, "1 IBV_WC_REM_INV_REQ_ERR")
	if b.State() != rdma.Error || to.lent.Held() != 0 || to.Dropped(TooLong) != 1 {
		t.Errorf("in %v, %d frames lent", b.State(), to.lent.Held())
	}
}

// TestLoansAfterClose: closing a queue pair returns the frames that the program has not taken.
func TestLoansAfterClose(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a, b := w.pair(options{loans: 8})
	from, to := w.ends[0], w.ends[1]
	send(t, a, rdma.SendRequest{ID: 1, Op: rdma.Send}, from.sge(0, 2000))
	w.loseOnce(5, 99)
	send(t, a, rdma.SendRequest{ID: 1, Op: rdma.Send}, from.sge(0, 5000))
	from.transmit()
	w.now += 2000
	w.batch = 4
	w.receive()
	if to.lent.Held() == 0 {
		t.Fatal("nothing is lent")
	}
	b.Close()
	b.Close()
	to.collect()
	if n := to.lent.Held(); n != 0 {
		t.Errorf("%d frames are lent still", n)
	}
	if to.find(b.Number()) != nil {
		t.Error("the queue pair is there")
	}
}
