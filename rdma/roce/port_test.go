package roce

import (
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/msg"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/umem/porttest"
)

// TestMessagePort: message ports on a device keep the contract of ports. Both ends are on one
// device, since the suite has one region. Only the wire between two devices is missing.
func TestMessagePort(t *testing.T) {
	g := newRig(t, rigOptions{mtu: 4200})
	s := g.sides[0]
	for _, transport := range []rdma.Transport{rdma.RC, rdma.UC, rdma.UD} {
		t.Run(transport.String(), func(t *testing.T) {
			for _, c := range porttest.Cases() {
				if transport != rdma.RC {
					testenv.Long(t, "RC covers most of it")
				}
				t.Run(c.Name, func(t *testing.T) {
					on := *g
					on.TB = t
					side := *s
					side.rig = &on
					side.worker(s)
					c.Check(t, func(testing.TB) *porttest.Link { return side.link(transport) })
				})
			}
		})
	}
}

// worker gives the side its own holder, empty as the suite expects it.
func (s *side) worker(of *side) {
	s.Helper()
	var err error
	s.book = of.region.NewBook("worker")
	s.hands, err = s.book.NewHolder(umem.OwnerWorker, "worker")
	s.must(err)
	s.Cleanup(func() { s.must(s.book.Close()) })
}

const (
	portDepth = 64
	landing   = 128 // bytes of a frame before a message
)

func (s *side) link(transport rdma.Transport) *porttest.Link {
	l := &porttest.Link{Worker: s.hands, Min: 8, Max: 4096 - landing, Offset: landing, Timeout: 20 * time.Second,
		Spoil: func(f *umem.Frame) { f.Len = 4096 }}
	if transport == rdma.UD {
		l.Max, l.Scratch = 3968, rdma.GRHBytes
	}
	l.Reopen = func(testing.TB) {
		a, b := s.portConfig("a", transport), s.portConfig("b", transport)
		s.join(&a.QueuePairs[0], b.QueuePairs[0].QueuePair)
		s.join(&b.QueuePairs[0], a.QueuePairs[0].QueuePair)
		l.Sender, l.Receiver = s.openPort(a), s.openPort(b)
	}
	l.Reopen(s)
	return l
}

// portConfig makes the configuration of a port. The port closes the objects in it.
func (s *side) portConfig(name string, transport rdma.Transport) msg.Config {
	s.Helper()
	c := msg.Config{Name: name, Worker: s.hands, Memory: s.memory, Landing: landing, Events: true, Datagrams: transport == rdma.UD,
		SendCQ: s.queue(portDepth), ReceiveCQ: s.queue(2 * portDepth)}
	q, err := s.pd.NewQueuePair(rdma.QueuePairConfig{Transport: transport, SendCQ: c.SendCQ, ReceiveCQ: c.ReceiveCQ, SendDepth: portDepth, RecvDepth: portDepth,
		SendSGEs: 4, InlineBytes: 64})
	s.must(err)
	p := msg.Peer{QueuePair: q, Message: 4096 - landing}
	if transport == rdma.UD {
		p.Handle, err = s.pd.NewAddressHandle(rdma.Address{GID: s.gid.GID, GIDIndex: uint16(s.gid.Index), Port: 1})
		s.must(err)
	}
	c.QueuePairs = []msg.Peer{p}
	return c
}

func (s *side) queue(depth int) rdma.CompletionQueue {
	q, err := s.dev.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: depth, Events: true})
	s.must(err)
	return q
}

// join takes a port's queue pair to RTS, connected to another one.
func (s *side) join(p *msg.Peer, to rdma.QueuePair) {
	s.Helper()
	p.QPN, p.QKey = to.QPN(), qkey
	a := attributes(s, to.QPN(), rdma.MTU4096, s)
	a.RNRRetries = 7
	s.must((&end{side: s, qp: p.QueuePair}).lead(a))
}

func (s *side) openPort(c msg.Config) *msg.Port {
	s.Helper()
	p, err := msg.Open(c)
	s.must(err)
	s.Cleanup(func() { s.must(p.Close()) })
	return p
}

// TestSendControl: a port can send messages from memory outside of its frames. Only a message with
// a completion tells it how many are done. It reports a failed queue pair once.
func TestSendControl(t *testing.T) {
	s := newRig(t, rigOptions{mtu: 4200}).sides[0]
	a, b := s.portConfig("a", rdma.RC), s.portConfig("b", rdma.RC)
	pair := a.QueuePairs[0].QueuePair
	s.join(&a.QueuePairs[0], b.QueuePairs[0].QueuePair)
	s.join(&b.QueuePairs[0], pair)
	from, to := s.openPort(a), s.openPort(b)
	frames := make([]umem.Frame, 9)
	if s.hands.Take(frames) < len(frames) {
		t.Fatal("too few frames")
	}
	places := frames[8].Addr
	defer func() { s.hands.Give(frames[8:]) }()
	if to.Supply(frames[:8]) != 8 {
		t.Fatal("too few receives")
	}
	control := func(n uint64, told bool) {
		t.Helper()
		s.region.At(places+64*n, 64)[0] = byte(n)
		if !from.SendControl(0, places+64*n, 64, told) {
			t.Errorf("message %d is not taken", n)
		}
		s.must(from.Kick())
	}
	came := uint64(0)
	arrive := func(n uint64) {
		t.Helper()
		testenv.Wait(t, 10*time.Second, "messages to arrive", func() bool {
			for k := to.Recv(frames[:8]); k > 0; k = to.Recv(frames[:8]) {
				for _, f := range frames[:k] {
					if b := s.region.Bytes(f); len(b) != 64 || b[0] != byte(came) {
						t.Errorf("message %d has %d bytes, the first %d", came, len(b), b[0])
					}
					came++
				}
				s.hands.Give(frames[:k])
			}
			return came == n
		})
	}
	for n := range uint64(3) {
		control(n, false)
	}
	arrive(3)
	if n := from.UnderWay(0); n != 3 {
		t.Errorf("%d are under way, of 3 that nothing was told of", n)
	}
	control(3, true)
	arrive(4)
	var none [1]umem.Frame
	testenv.Wait(t, 10*time.Second, "all to be done", func() bool { return from.Reap(none[:]) == 0 && from.UnderWay(0) == 0 })
	if from.SendControl(1, places, 64, true) || from.UnderWay(1) != 0 {
		t.Error("a queue pair that there is not takes a message")
	}

	s.must(pair.Modify(rdma.Attributes{State: rdma.Error}, rdma.MaskState))
	control(4, false)
	var broken [2]int
	testenv.Wait(t, 10*time.Second, "the failure", func() bool {
		from.Reap(none[:])
		return from.Broken(broken[:]) == 1 && broken[0] == 0
	})
	if from.Cause(0) == nil || from.Broken(broken[:]) != 0 {
		t.Errorf("the cause is %v, or it is told of again", from.Cause(0))
	}
}
