package fanout

import (
	"context"
	"encoding/binary"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/rdma/roce/rocetest"
	"github.com/unifiedd/unifiedd/umem"
)

// machine is a network namespace with a region and a device.
type machine struct {
	testing.TB
	ns     rocetest.Machine
	region *umem.Region
	at     *stream.Endpoint
}

// newMachines returns two connected machines. At the end of the test it checks that every frame is
// in its pool.
func newMachines(t testing.TB) (near, far *machine) {
	t.Helper()
	testenv.Root(t)
	testenv.Leaks(t)
	a, b := rocetest.Pair(t)
	return newMachine(t, a), newMachine(t, b)
}

func newMachine(t testing.TB, at rocetest.Machine) *machine {
	t.Helper()
	m := &machine{TB: t, ns: at}
	region, d := at.Start(t, umem.Config{Size: 32 << 20, Pages: umem.Ordinary})
	var err error
	m.region = region
	m.at, err = stream.OpenEndpoint(d, region)
	m.must(err)
	t.Cleanup(func() { m.must(m.at.Close()) })
	return m
}

func (m *machine) with(t testing.TB) *machine {
	other := *m
	other.TB = t
	return &other
}

func (m *machine) must(err error) { m.Helper(); testenv.Must(m, err) }

// worker is a thread that runs rounds, and commands between rounds.
type worker struct {
	*machine
	*rocetest.Loop
	hands *umem.Holder
	round func() (moved bool) // runs on the thread
}

func (m *machine) newWorker(name string) *worker {
	m.Helper()
	w := &worker{machine: m}
	book := m.region.NewBook(name)
	var err error
	w.hands, err = book.NewHolder(umem.OwnerWorker, name)
	m.must(err)
	w.Loop = rocetest.NewLoop(func() bool { return w.round != nil && w.round() }, nil)
	m.Cleanup(func() {
		m.Helper()
		w.Stop()
		m.must(book.Close())
	})
	return w
}

func (w *worker) do(f func() error) error { return w.Do(f) }

func (w *worker) on(f func()) {
	w.Helper()
	w.must(w.do(func() error { f(); return nil }))
}

func (w *worker) take(n int) []umem.Frame {
	w.Helper()
	fs := make([]umem.Frame, n)
	w.on(func() { fs = fs[:w.hands.Take(fs)] })
	if len(fs) < n {
		w.Fatalf("the pool has %d of %d frames", len(fs), n)
	}
	return fs
}

// sink is a receiver. It takes messages whose stamps are their tokens.
type sink struct {
	*worker
	r       *stream.Receiver
	address string
	cancel  context.CancelFunc
	served  chan error

	// The worker's thread owns these:
	hold   bool // keep frames
	held   []umem.Frame
	tokens []uint64
	wrong  string
	buf    [64]umem.Frame
}

// newSink opens a receiver with this number of frames for one sender. It listens at port; 0 picks a
// free one.
func (m *machine) newSink(frames, port int) *sink {
	m.Helper()
	k := &sink{worker: m.newWorker("sink"), served: make(chan error, 1)}
	c := stream.ReceiverConfig{Name: "sink", Endpoint: m.at, Worker: k.hands, Flow: "feed", Message: 1024, Window: frames, Peers: 1,
		Durability: protocol.Received, Check: true, Events: true}
	k.on(func() {
		var err error
		k.r, err = stream.OpenReceiver(c)
		testenv.Check(m, err)
	})
	if k.r == nil {
		m.FailNow()
	}
	m.Cleanup(k.close)
	fs := k.take(frames)
	k.on(func() {
		k.r.Supply(fs)
		k.round = k.turn
	})
	k.serve(port)
	return k
}

func (k *sink) serve(port int) {
	k.Helper()
	var l *connect.Listener
	k.ns.Do(k, func() {
		testenv.Wait(k, 10*time.Second, "the port to be free", func() bool {
			var err error
			l, err = connect.Listen(context.Background(), k.ns.IP.String()+":"+strconv.Itoa(port), connect.Config{})
			return err == nil
		})
	})
	k.address = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	k.cancel = cancel
	go func() { k.served <- errors.Join(k.r.Serve(ctx, l, k.do), l.Close()) }()
}

func (k *sink) close() {
	k.Helper()
	k.cancel()
	testenv.Check(k, <-k.served)
	k.served <- nil
	k.on(func() {
		k.round = nil
		k.hands.Give(k.held)
		k.held = nil
		testenv.Check(k, k.r.Close())
		if k.wrong != "" {
			k.Error(k.wrong)
		}
	})
}

func (k *sink) turn() bool {
	n := k.r.Recv(k.buf[:])
	for _, f := range k.buf[:n] {
		k.look(f)
	}
	if k.hold {
		k.held = append(k.held, k.buf[:n]...)
	} else {
		k.r.Supply(k.buf[:n])
	}
	if err := k.r.Poll(time.Now()); err != nil {
		k.wrong = err.Error()
	}
	return n > 0
}

// look checks a message. The receiver checks its payload's checksum.
func (k *sink) look(f umem.Frame) {
	d, reason := protocol.ParseData(k.region.Bytes(f))
	switch {
	case reason != protocol.None:
		k.wrong = reason.Error()
	case len(k.tokens) > 0 && d.Stamp <= k.tokens[len(k.tokens)-1]:
		k.wrong = "a message twice, or out of turn"
	}
	k.tokens = append(k.tokens, d.Stamp)
	k.r.Acknowledge(k.region.Side(f).Queue, d.Sequence, 0)
}

// came returns the number of messages received.
func (k *sink) came() (n int) {
	k.Helper()
	k.on(func() { n = len(k.tokens) })
	return n
}

func (k *sink) await(n int) {
	k.Helper()
	testenv.Wait(k, 30*time.Second, strconv.Itoa(n)+" messages", func() bool { return k.came() >= n })
	if got := k.came(); got != n {
		k.Errorf("%d messages came, want %d", got, n)
	}
}

func (k *sink) slow(hold bool) {
	k.on(func() {
		if k.hold = hold; !hold {
			k.r.Supply(k.held)
			k.held = k.held[:0]
		}
	})
}

// source is a flow that offers messages with tokens 1, 2, 3 to a fanout.
type source struct {
	*worker
	f      *Fanout
	cancel context.CancelFunc
	ran    chan error

	// The worker's thread owns these:
	free    []umem.Frame
	want    uint64 // last token to offer
	sent    uint64
	acked   uint64 // last token acknowledged
	refused int    // refused offers
	wrong   string
	fill    func(b []byte, token uint64) int // fills a message and returns its length
	frames  [64]umem.Frame
	tokens  [64]uint64
}

// newSource opens a fanout to peers, which are pairs of address and policy. All peers have queues
// of depth messages.
func (m *machine) newSource(c Config, depth int, peers ...any) *source {
	m.Helper()
	s := &source{worker: m.newWorker("source"), ran: make(chan error, 1), fill: func(b []byte, token uint64) int {
		binary.BigEndian.PutUint64(b, token)
		return 8 + int(token*37%900)
	}}
	c.Name, c.Worker = "test", s.hands
	s.on(func() {
		for i := 0; i < len(peers); i += 2 {
			one, err := stream.OpenSender(stream.SenderConfig{Name: "peer" + strconv.Itoa(i/2), Endpoint: m.at, Worker: s.hands, Address: peers[i].(string), Flow: "feed",
				Depth: depth, Message: 1024, Events: true})
			if err != nil {
				m.Error(err)
				return
			}
			c.Peers = append(c.Peers, Peer{Sender: one, Policy: peers[i+1].(Policy)})
		}
		var err error
		s.f, err = Open(c)
		testenv.Check(m, err)
	})
	if s.f == nil {
		m.FailNow()
	}
	m.Cleanup(s.close)
	s.free = s.take(1024)
	s.on(func() { s.round = s.turn })
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go s.ns.Do(s, func() { s.ran <- s.f.runHere(ctx, s) })
	return s
}

// runHere is Run with each peer on a thread of the namespace.
func (f *Fanout) runHere(ctx context.Context, s *source) error {
	errs := make(chan error, len(f.peers))
	for _, p := range f.peers {
		go s.ns.Do(s, func() { errs <- p.sender.Run(ctx, s.do) })
	}
	var err error
	for range f.peers {
		err = errors.Join(err, <-errs)
	}
	return err
}

func (s *source) close() {
	s.Helper()
	s.cancel()
	testenv.Check(s, <-s.ran)
	s.on(func() {
		s.round = nil
		testenv.Check(s, errors.Join(s.f.Close(), s.f.Close()))
		s.hands.Give(s.free)
		if s.wrong != "" {
			s.Error(s.wrong)
		}
	})
}

func (s *source) turn() bool {
	before := s.sent + s.acked + uint64(len(s.free))
	if err := s.f.Poll(time.Now()); err != nil {
		s.wrong = err.Error()
	}
	for n := s.f.Free(s.frames[:]); n > 0; n = s.f.Free(s.frames[:]) {
		s.free = append(s.free, s.frames[:n]...)
	}
	for n := s.f.Acknowledged(s.tokens[:]); n > 0; n = s.f.Acknowledged(s.tokens[:]) {
		for _, token := range s.tokens[:n] {
			if s.acked++; token != s.acked {
				s.wrong = "acknowledged out of order"
			}
		}
	}
	for s.sent < s.want && len(s.free) > 0 && s.offer() {
	}
	if err := s.f.Kick(); err != nil {
		s.wrong = err.Error()
	}
	return s.sent+s.acked+uint64(len(s.free)) != before
}

// offer offers a message in one or two frames.
func (s *source) offer() bool {
	last := len(s.free) - 1
	start, _ := s.region.Start(s.free[last])
	f := umem.Frame{Addr: start}
	f.Len = uint32(s.fill(s.region.At(start, 1024), s.sent+1))
	if !s.f.Offer([]umem.Frame{f}, s.sent+1, s.sent+1) {
		s.refused++
		return false
	}
	s.free = s.free[:last]
	s.sent++
	return true
}

func (s *source) more(n uint64) { s.on(func() { s.want += n }) }

// wait waits until a condition is true on the worker's thread.
func (s *source) wait(what string, so func() bool) {
	s.Helper()
	defer func() {
		if s.Failed() {
			for i, p := range s.f.Stats() {
				s.Logf("peer %d: %+v", i, p)
			}
		}
	}()
	testenv.Wait(s, 30*time.Second, what, func() (yes bool) {
		s.on(func() { yes = so() || s.wrong != "" })
		return yes
	})
	if s.wrong != "" {
		s.Fatal(s.wrong)
	}
}

// idle waits until nothing is in flight, and checks that all messages are counted.
func (s *source) idle() []PeerStats {
	s.Helper()
	s.wait("nothing to be under way", func() bool { return s.sent == s.want && s.f.Idle() })
	all := s.f.Stats()
	for i, p := range all {
		sum := p.Sender.Acknowledged
		for _, n := range p.Dropped {
			sum += n
		}
		if sum != p.Offered {
			s.Errorf("peer %d was offered %d messages, and %d are accounted for: %+v", i, p.Offered, sum, p)
		}
	}
	return all
}
