package xdp

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// TestSharedUMEM: every queue of an interface receives on one registration. Each queue gets packets
// from the same queue of the other end.
func TestSharedUMEM(t *testing.T) {
	const queues = 4
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true, Queues: queues})
	g := newRig(t, small())
	from := g.open(&pair.A, Config{Direction: Send, RingSize: 64})
	to := g.open(&pair.B, Config{Direction: Receive, RingSize: 64})
	if got := g.region.Registered(); len(got) != 2 {
		t.Errorf("registered with %v, want once for each interface", got)
	}
	if len(to.Ports()) != queues || len(to.Unbound()) != 0 {
		t.Fatalf("%d ports, queues %v unbound", len(to.Ports()), to.Unbound())
	}
	for _, p := range to.Ports() {
		g.supply(p, 64)
	}
	g.start(to)
	for n := range queues {
		sent := packets(&pair.A, &pair.B, 20+n, 400)
		from.Ports()[n].Send(g.load(sent))
		g.finishSending(from.Ports()[n], len(sent))
		for k, f := range g.receive(to.Ports()[n], len(sent)) {
			if q := g.region.Side(f).Queue; q != uint16(n) || !bytes.Equal(g.region.Bytes(f), sent[k]) {
				t.Fatalf("packet %d of queue %d is marked with queue %d, or differs", k, n, q)
			}
		}
	}
	g.balanced(to, 20+21+22+23)
}

// TestSomeQueues: the kernel gets the traffic of queues that are not listed, and Unbound lists them.
func TestSomeQueues(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true, Queues: 3})
	g := newRig(t, small())
	to := g.open(&pair.B, Config{Queues: []uint32{1}})
	if got := to.Unbound(); !slices.Equal(got, []uint32{0, 2}) {
		t.Errorf("unbound are %v", got)
	}
	p := to.Ports()[0]
	if p.Queue() != 1 {
		t.Errorf("the port is queue %d", p.Queue())
	}
	g.supply(p, 64)
	g.start(to)
	from := g.open(&pair.A, Config{Direction: Send})
	peer := listen(t, &pair.B)
	for n, sender := range from.Ports() {
		sender.Send(g.load([][]byte{packet(&pair.A, &pair.B, uint32(n), 100)}))
		g.finishSending(sender, 1)
	}
	f := g.receive(p, 1)[0]
	if !bytes.Equal(g.region.Bytes(f), packet(&pair.A, &pair.B, 1, 100)) {
		t.Error("another queue's packet came")
	}
	peer.expect(t, [][]byte{packet(&pair.A, &pair.B, 0, 100), packet(&pair.A, &pair.B, 2, 100)})
	if l := g.balanced(to, 3); l.Of(KernelNoSocket) != 2 {
		t.Errorf("ledger:%s", show(l))
	}
}

// TestWorkersPerQueue: each queue can have its own worker with its own book.
func TestWorkersPerQueue(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true, Queues: 2})
	g := newRig(t, small())
	book := g.region.NewBook("second")
	second, err := book.NewHolder(umem.OwnerWorker, "second")
	testenv.Must(t, err)
	defer func() {
		second.Close()
		testenv.Check(t, book.Close())
	}()
	i := g.open(&pair.B, Config{Holders: map[uint32]*umem.Holder{1: second}})
	defer i.Close()
	fs := make([]umem.Frame, 10)
	second.Take(fs)
	if n := i.Ports()[1].Supply(fs); n != 10 || second.Held() != 0 {
		t.Errorf("Supply took %d, the second worker has %d left", n, second.Held())
	}
	g.supply(i.Ports()[0], 10)
	if g.worker.Held() != 0 {
		t.Errorf("the first worker has %d left", g.worker.Held())
	}
}

// TestTwoShapes: two interfaces can register one region with different shapes, and frames pass from
// one to the other.
func TestTwoShapes(t *testing.T) {
	one := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	two := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	a := g.open(&one.B, Config{Shape: umem.Shape{Headroom: 284}})
	b := g.open(&two.B, Config{Shape: umem.Shape{Headroom: 0}})
	pa, pb := a.Ports()[0], b.Ports()[0]
	g.supply(pa, 64)
	g.supply(pb, 64)
	g.start(a)
	g.start(b)
	peer := listen(t, &two.A)
	sent := packets(&one.A, &one.B, 50, 900)
	testenv.SendRaw(t, &one.A, sent, testenv.SendOptions{})
	got := g.receive(pa, 50)
	for n, f := range got {
		if start, _ := g.region.Start(f); f.Addr-start != 540 {
			t.Fatalf("packet %d landed at %d", n, f.Addr-start)
		}
	}
	if n := pb.Send(got); n != 50 {
		t.Fatalf("Send took %d", n)
	}
	g.finishSending(pb, 50)
	peer.expect(t, sent)
	testenv.SendRaw(t, &two.A, packets(&two.A, &two.B, 1, 900), testenv.SendOptions{})
	f := g.receive(pb, 1)[0]
	if start, _ := g.region.Start(f); f.Addr-start != 256 {
		t.Fatalf("the packet on the other interface landed at %d", f.Addr-start)
	}
}

// TestBusyQueue: Open waits for a queue that another socket has, and reports it after the limit.
func TestBusyQueue(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true, Queues: 2})
	g := newRig(t, small())
	i := g.open(&pair.B, Config{Queues: []uint32{uint32(pair.Queues - 1)}, NoProgram: true})
	begin := time.Now()
	_, err := g.tryOpen(&pair.B, Config{NoProgram: true, BindTimeout: 200 * time.Millisecond})
	if !errors.Is(err, ErrQueueBusy) {
		t.Errorf("open: %v", err)
	}
	if took := time.Since(begin); took < 200*time.Millisecond || took > testenv.Within(2*time.Second) {
		t.Errorf("gave up after %v", took)
	}
	// Open waits for the queue as long as allowed.
	time.AfterFunc(100*time.Millisecond, func() { i.Close() })
	j := g.open(&pair.B, Config{})
	if len(j.Ports()) != pair.Queues {
		t.Errorf("%d ports", len(j.Ports()))
	}
}
