package roce

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/umem"
)

// rig is two devices, each in its own network namespace with its own region, joined by a veth pair.
type rig struct {
	testing.TB
	pair    *testenv.Pair
	sides   [2]*side
	timeout uint8 // of queue pairs; a busy datapath needs more than a network does
}

// side is a device with the objects that most tests need.
type side struct {
	*rig
	ns     *testenv.End
	region *umem.Region
	dev    *Device
	pd     rdma.ProtectionDomain
	memory rdma.MemoryRegion // of the whole region, with all rights
	gid    rdma.GIDEntry
	book   *umem.Book
	hands  *umem.Holder
	base   uint64 // of an extent of extentBytes for the test
}

const extentBytes = 16 << 20

type rigOptions struct {
	mtu    int
	queues int
	ipv6   bool
	frames uint32 // bytes of one
	config Config
}

func newRig(t testing.TB, o rigOptions) *rig {
	t.Helper()
	testenv.Root(t)
	testenv.Leaks(t)
	return newRigOn(t, testenv.NewPair(t, testenv.PairOptions{MTU: o.mtu, Queues: o.queues, IPv6: o.ipv6}), o)
}

// newRigOn makes a rig in namespaces that are already joined.
func newRigOn(t testing.TB, pair *testenv.Pair, o rigOptions) *rig {
	g := &rig{TB: t, timeout: 16, pair: pair}
	for i, e := range []*testenv.End{&g.pair.A, &g.pair.B} {
		g.sides[i] = g.newSide(e, o)
	}
	return g
}

func (g *rig) newSide(e *testenv.End, o rigOptions) *side {
	g.Helper()
	s := &side{rig: g, ns: e}
	var err error
	s.region, err = umem.Open(umem.Config{Size: 64 << 20, FrameSize: o.frames, Pages: umem.Ordinary, ExtentSize: extentBytes, Extents: 1})
	g.must(err)
	g.Cleanup(func() { g.must(s.region.Close()) })
	s.book = s.region.NewBook("test")
	s.hands, err = s.book.NewHolder(umem.OwnerWorker, "test")
	g.must(err)
	var extent [1]umem.Frame
	s.hands.TakeExtents(extent[:])
	s.base = extent[0].Addr
	g.Cleanup(func() { s.rest(extent[:]) })
	s.open(o.config)
	s.pd = testenv.Opened(g, s.dev.NewProtectionDomain)
	s.memory = testenv.Opened(g, func() (rdma.MemoryRegion, error) { return s.pd.Register(s.region, rdma.EveryAccess) })
	table, err := s.dev.GIDs(1)
	g.must(err)
	ip := e.IP
	if o.ipv6 {
		ip = e.IP6
	}
	own := slices.IndexFunc(table, func(e rdma.GIDEntry) bool { return e.GID == rdma.GIDOf(ip) })
	if own < 0 {
		g.Fatalf("%v is not among the addresses %v", ip, table)
	}
	s.gid = table[own]
	return s
}

// open opens the device, and closes it at the end of the test.
func (s *side) open(c Config) {
	s.Helper()
	c.Region = s.region
	if c.Receive == 0 {
		c.Receive, c.Send = 1024, 256
	}
	p, err := NewProvider(c)
	s.must(err)
	s.ns.Do(s, func() {
		d, err := p.Open(s.ns.Ifname)
		s.must(err)
		s.dev = d.(*Device)
	})
	s.Cleanup(func() { s.must(s.dev.Close()) })
}

// rest gives the test's frames back, and checks that all frames are in the pool.
func (s *side) rest(extent []umem.Frame) {
	s.Helper()
	s.hands.Give(extent)
	s.must(s.book.Close())
	count, err := s.region.Audit()
	s.must(err)
	if pool := count.Of(umem.OwnerPool); pool != s.region.Frames() {
		s.Errorf("the pool has %d of %d frames in the end: %v", pool, s.region.Frames(), count)
	}
}

func (g *rig) must(err error) { g.Helper(); testenv.Check(g, err) }

// end is a queue pair with a completion queue.
type end struct {
	*side
	qp rdma.QueuePair
	cq rdma.CompletionQueue
}

// config returns the configuration that most tests use.
func config(t rdma.Transport) rdma.QueuePairConfig {
	return rdma.QueuePairConfig{Transport: t, SendDepth: 64, RecvDepth: 64, SendSGEs: 4, RecvSGEs: 4, InlineBytes: 128, SignalAll: true}
}

func (s *side) newEnd(c rdma.QueuePairConfig) *end {
	s.Helper()
	e := &end{side: s}
	e.cq = testenv.Opened(s.rig, func() (rdma.CompletionQueue, error) {
		return s.dev.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: 512, Events: true})
	})
	c.SendCQ, c.ReceiveCQ = e.cq, e.cq
	e.qp = testenv.Opened(s.rig, func() (rdma.QueuePair, error) { return s.pd.NewQueuePair(c) })
	return e
}

const qkey = 0x11111111

// attributes returns the attributes for all states. Tests change some of them.
func attributes(to *side, remote uint32, mtu rdma.MTU, from *side) rdma.Attributes {
	return rdma.Attributes{Port: 1, Access: rdma.Remote, QKey: qkey, PathMTU: mtu, RemoteQPN: remote, ReceivePSN: 0xfffffe, SendPSN: 0xfffffe,
		Address: rdma.Address{GID: to.gid.GID, GIDIndex: uint16(from.gid.Index)}, MaxReads: 8, MaxRemoteReads: 8, MinRNRTimer: 1, Timeout: from.timeout, Retries: 6, RNRRetries: 6}
}

// lead takes the queue pair to RTS.
func (e *end) lead(a rdma.Attributes) error {
	type step struct {
		to    rdma.State
		given rdma.Mask
	}
	path := rdma.MaskAddress | rdma.MaskPathMTU | rdma.MaskRemoteQPN | rdma.MaskReceivePSN
	steps := map[rdma.Transport][3]step{
		rdma.RC: {{rdma.Init, rdma.MaskPKeyIndex | rdma.MaskPort | rdma.MaskAccess}, {rdma.ReadyToReceive, path | rdma.MaskMaxRemoteReads | rdma.MaskMinRNRTimer},
			{rdma.ReadyToSend, rdma.MaskSendPSN | rdma.MaskTimeout | rdma.MaskRetries | rdma.MaskRNRRetries | rdma.MaskMaxReads}},
		rdma.UC: {{rdma.Init, rdma.MaskPKeyIndex | rdma.MaskPort | rdma.MaskAccess}, {rdma.ReadyToReceive, path}, {rdma.ReadyToSend, rdma.MaskSendPSN}},
		rdma.UD: {{rdma.Init, rdma.MaskPKeyIndex | rdma.MaskPort | rdma.MaskQKey}, {rdma.ReadyToReceive, 0}, {rdma.ReadyToSend, rdma.MaskSendPSN}},
	}
	for _, s := range steps[e.qp.Config().Transport] {
		a.State = s.to
		if err := e.qp.Modify(a, s.given|rdma.MaskState); err != nil {
			return err
		}
	}
	return nil
}

// connected makes a queue pair on each side, ready to send to each other.
func (g *rig) connected(c rdma.QueuePairConfig, mtu rdma.MTU) (a, b *end) {
	g.Helper()
	a, b = g.sides[0].newEnd(c), g.sides[1].newEnd(c)
	for _, err := range []error{a.lead(attributes(b.side, b.qp.QPN(), mtu, a.side)), b.lead(attributes(a.side, a.qp.QPN(), mtu, b.side))} {
		testenv.Must(g, err)
	}
	return a, b
}

func (s *side) sge(offset uint64, n int) rdma.SGE {
	return rdma.SGE{Addr: s.base + offset, Length: uint32(n), LKey: s.memory.LKey()}
}

func (s *side) at(offset uint64, n int) []byte { return s.region.At(s.base+offset, uint64(n)) }

// fill writes a pattern, and returns a copy.
func (s *side) fill(offset uint64, n int, seed byte) []byte {
	b := s.at(offset, n)
	for i := range b {
		b[i] = seed + byte(i*7) + byte(i>>8)*13
	}
	return bytes.Clone(b)
}

func (e *end) send(r rdma.SendRequest, sges ...rdma.SGE) {
	e.Helper()
	r.SGEs = uint32(len(sges))
	if n, err := e.qp.PostSend([]rdma.SendRequest{r}, sges); n != 1 || err != nil {
		e.Fatalf("post %v: %d, %v", r.Op, n, err)
	}
}

func (e *end) receive(id uint64, sges ...rdma.SGE) {
	e.Helper()
	if n, err := e.qp.PostReceive([]rdma.ReceiveRequest{{ID: id, SGEs: uint32(len(sges))}}, sges); n != 1 || err != nil {
		e.Fatalf("post a receive: %d, %v", n, err)
	}
}

// completion polls until there is a completion.
func (e *end) completion() rdma.WorkCompletion {
	e.Helper()
	var got [1]rdma.WorkCompletion
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		n, err := e.cq.Spin(got[:], 100*time.Microsecond)
		testenv.Must(e, err)
		if n == 1 {
			return got[0]
		}
	}
	e.Fatalf("no completion came in 10 s\n%s", e.dev.show())
	return got[0]
}

// want waits for a completion.
func (e *end) want(id uint64, k rdma.Kind, status rdma.Status) rdma.WorkCompletion {
	e.Helper()
	c := e.completion()
	if c.ID != id || c.Status != status || status == rdma.Success && c.Kind != k {
		e.Fatalf("completion %d of %v with %v, want %d of %v with %v\n%s", c.ID, c.Kind, c.Status, id, k, status, e.dev.show())
	}
	return c
}

// show lists the device's counters that are not zero.
func (d *Device) show() (text string) {
	for _, c := range d.Counters() {
		if c.Value != 0 {
			text += fmt.Sprintf(" %s=%d", c.Name, c.Value)
		}
	}
	return text
}

// await drives the device until f returns true.
func (s *side) await(f func() bool) {
	s.Helper()
	testenv.Wait(s, 10*time.Second, "it", func() bool { s.dev.Progress(); return f() })
}
