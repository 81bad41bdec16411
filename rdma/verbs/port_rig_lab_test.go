//go:build verbs && cgo

package verbs

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/msg"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/umem/porttest"
)

// portShape describes the message ports under test.
type portShape struct {
	transport rdma.Transport
	pairs     int // the last one carries the messages; 0: one, without a shared receive queue
	events    bool
	rnr       uint8 // RNRRetries
}

const portDepth = 64

// landing is the offset of messages in the frames of tests.
const landing = 128

// portBench is a bench with a worker on its region.
type portBench struct {
	*bench
	worker *umem.Holder
}

func newPortBench(t *testing.T) *portBench {
	t.Helper()
	p := &portBench{bench: newBench(t, everything)}
	wire(t, "virtio1") // this card is up only while the other one is
	return p.on(t)
}

// run runs tests that share the device, in the order of their names, each with its own worker.
func (p *portBench) run(tests map[string]func(*portBench)) {
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		p.t.Run(name, func(t *testing.T) { tests[name](p.on(t)) })
	}
}

// wire sets up the card at the other end of the wire. Without it, packets that the kernel sends
// stay in the bench's card until its driver complains.
func wire(t *testing.T, card string) {
	t.Helper()
	link, err := netlink.LinkByName(card)
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	testenv.Mustf(t, err, "set %s up", card)
	t.Cleanup(func() { _ = netlink.LinkSetDown(link) })
}

// on gives a subtest its own worker, and checks at the end that all of its frames are back.
func (p *portBench) on(t *testing.T) *portBench {
	t.Helper()
	of := &portBench{bench: p.bench.on(t)}
	book := of.region.NewBook(t.Name())
	worker, err := book.NewHolder(umem.OwnerWorker, "worker of "+t.Name())
	testenv.Must(t, err)
	of.worker = worker
	t.Cleanup(func() {
		testenv.Check(t, book.Close())
		if c, err := of.region.Audit(); err != nil || c.Of(umem.OwnerPool) != of.region.Frames() {
			t.Errorf("at the end %+v, %v", c, err)
		}
	})
	return of
}

func (p *portBench) queue(depth int, events bool) rdma.CompletionQueue {
	p.t.Helper()
	q, err := p.dev.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: depth, Events: events})
	testenv.Must(p.t, err)
	return q
}

// config makes the configuration of a port, with queue pairs that are not connected. A single one
// takes as many requests as the port: Soft-RoCE rounds 64 completions up, and on Linux 6.1 does not
// round 64 requests up.
func (p *portBench) config(name string, s portShape) msg.Config {
	p.t.Helper()
	c := msg.Config{Name: name, Worker: p.worker, Memory: p.memory, Landing: landing, Events: s.events, Datagrams: s.transport == rdma.UD,
		SendCQ: p.queue(portDepth-1, s.events), ReceiveCQ: p.queue(2*portDepth, s.events)}
	if s.pairs > 0 {
		shared, err := p.pd.NewSharedReceiveQueue(rdma.SharedReceiveQueueConfig{Depth: portDepth})
		testenv.Must(p.t, err)
		c.Shared = shared
	}
	for range max(s.pairs, 1) {
		c.QueuePairs = append(c.QueuePairs, p.peer(&c, s))
	}
	return c
}

func (p *portBench) peer(c *msg.Config, s portShape) msg.Peer {
	p.t.Helper()
	q, err := p.pd.NewQueuePair(rdma.QueuePairConfig{Transport: s.transport, SendCQ: c.SendCQ, ReceiveCQ: c.ReceiveCQ, Shared: c.Shared,
		SendDepth: portDepth, RecvDepth: portDepth, SendSGEs: 4, InlineBytes: 64})
	testenv.Must(p.t, err)
	peer := msg.Peer{QueuePair: q, Message: 4096 - landing}
	if s.transport == rdma.UD {
		peer.Message = uint64(p.mtu.Bytes())
		peer.Handle, err = p.pd.NewAddressHandle(rdma.Address{GID: p.gid.GID, GIDIndex: uint16(p.gid.Index), Port: 1})
		testenv.Must(p.t, err)
	}
	return peer
}

// join connects queue pairs of two ports with each other, in order.
func (p *portBench) join(a, b *msg.Config, s portShape) {
	p.t.Helper()
	for i := range a.QueuePairs {
		x, y := &a.QueuePairs[i], &b.QueuePairs[i]
		p.joinPeers(x, y, s)
	}
}

func (p *portBench) joinPeers(x, y *msg.Peer, s portShape) {
	p.t.Helper()
	x.QPN, x.QKey, y.QPN, y.QKey = y.QueuePair.QPN(), qkey, x.QueuePair.QPN(), qkey
	p.connectTo(x.QueuePair, y.QueuePair.QPN(), s.rnr)
	p.connectTo(y.QueuePair, x.QueuePair.QPN(), s.rnr)
}

// connectTo takes a queue pair to RTS. If rnr is 0, it retries without a limit while the peer is
// not ready.
func (p *portBench) connectTo(q rdma.QueuePair, peer uint32, rnr uint8) {
	p.t.Helper()
	if rnr == 0 {
		rnr = 7
	}
	e := &end{t: p.t, b: p.bench, qp: q}
	e.connectWith(peer, rnr)
}

// open makes two connected ports.
func (p *portBench) open(s portShape) (a, b *msg.Port) {
	p.t.Helper()
	ca, cb := p.config("a", s), p.config("b", s)
	p.join(&ca, &cb, s)
	return p.openPort(ca), p.openPort(cb)
}

func (p *portBench) openPort(c msg.Config) *msg.Port {
	p.t.Helper()
	port, err := msg.Open(c)
	testenv.Must(p.t, err)
	p.t.Cleanup(func() {
		testenv.Check(p.t, port.Close())
	})
	return port
}

// link describes two ports to the contract's suite.
func (p *portBench) link(open func(*porttest.Link)) *porttest.Link {
	l := &porttest.Link{Worker: p.worker, Min: 8, Max: 4096 - landing, Offset: landing, Timeout: 20 * time.Second,
		Spoil: func(f *umem.Frame) { f.Len = 4096 }}
	l.Reopen = func(testing.TB) { open(l) }
	open(l)
	return l
}

// frames takes frames from the pool, with views of length bytes at the landing. They return at the
// end of the test.
func (p *portBench) frames(n int, length uint32) []umem.Frame {
	p.t.Helper()
	fs := make([]umem.Frame, n)
	if got := p.worker.Take(fs); got != n {
		p.t.Fatalf("the pool had %d of %d frames", got, n)
	}
	for i := range fs {
		fs[i].Addr += landing
		fs[i].Len = length
	}
	return fs
}

// take calls a verb until it has returned n frames.
func take(t *testing.T, what string, n int, p umem.Port, verb func([]umem.Frame) int) []umem.Frame {
	t.Helper()
	fs := make([]umem.Frame, n)
	got := 0
	testenv.Wait(t, 20*time.Second, what, func() bool {
		_ = p.Kick() // of a port that failed it returns an error
		got += verb(fs[got:])
		return got == n
	})
	return fs
}

// wantErr checks the error in frames; nil for none.
func wantErr(t *testing.T, what string, fs []umem.Frame, want error) {
	t.Helper()
	for i, f := range fs {
		if err := f.Err(); !errors.Is(err, want) {
			t.Errorf("%s: frame %d came back with %v, want %v", what, i, err, want)
		}
	}
}
