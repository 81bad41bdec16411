//go:build verbs && cgo

package verbs

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/umem"
)

// bench is a Soft-RoCE device with a region that is registered as a whole.
type bench struct {
	t      *testing.T
	dev    rdma.Device
	pd     rdma.ProtectionDomain
	region *umem.Region
	memory rdma.MemoryRegion
	gid    rdma.GIDEntry
	mtu    rdma.MTU
}

// card is the interface under the device.
const card = "virtio0"

// here is the address of the card, and elsewhere is an address that no host has.
var here, elsewhere = netip.MustParseAddr("10.79.0.1"), netip.MustParseAddr("10.79.0.9")

// newBench makes a device on a card, and a region of size bytes.
func newBench(t *testing.T, size uint64) *bench {
	t.Helper()
	testenv.Leaks(t)
	name := labenv.SoftRoCE(t, card, here.String()+"/24")
	b := &bench{t: t}
	t.Cleanup(func() { labenv.RDMAAtRest(t, name) })
	b.dev = testenv.Opened(t, func() (rdma.Device, error) { return Provider{}.Open(name) })
	b.dev.(*device).windows = true // tests use those of Soft-RoCE, within their limits
	b.pd = testenv.Opened(t, b.dev.NewProtectionDomain)
	b.region = testenv.Opened(t, func() (*umem.Region, error) { return umem.Open(umem.Config{Size: size}) })
	b.memory = b.register(rdma.LocalWrite | rdma.Remote | rdma.BindWindows)
	table, err := b.dev.GIDs(1)
	if err == nil {
		b.gid, err = rdma.ChooseGID(table, here)
	}
	testenv.Must(t, err)
	port, err := b.dev.Port(1)
	testenv.Must(t, err)
	b.mtu = port.ActiveMTU
	return b
}

// on returns the bench for a subtest. The subtest closes what it makes.
func (b *bench) on(t *testing.T) *bench {
	of := *b
	of.t = t
	return &of
}

// run runs tests that share the bench, in the order of their names.
func (b *bench) run(tests map[string]func(*bench)) {
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		b.t.Run(name, func(t *testing.T) { tests[name](b.on(t)) })
	}
}

func (b *bench) register(a rdma.Access) rdma.MemoryRegion {
	b.t.Helper()
	return testenv.Opened(b.t, func() (rdma.MemoryRegion, error) { return b.pd.Register(b.region, a) })
}

// long skips a test in the short form if another test there covers the same, or most of it. make
// lab runs it.
func long(t *testing.T, shown string) {
	t.Helper()
	if shown != "" {
		testenv.Long(t, shown+"; make lab runs it")
	}
}

// times returns how often to repeat the same work: a tenth in the short form.
func times(n int) int {
	if testing.Short() {
		return max(n/10, 1)
	}
	return n
}

// end is a queue pair with its completion queue.
type end struct {
	t    *testing.T
	b    *bench
	qp   rdma.QueuePair
	cq   rdma.CompletionQueue
	to   rdma.GID // the peer's; zero: the bench's own
	bare bool     // the peer has no access to memory through it
}

// config returns the configuration that most tests use.
func config(transport rdma.Transport) rdma.QueuePairConfig {
	return rdma.QueuePairConfig{Transport: transport, SendDepth: 64, RecvDepth: 64, SendSGEs: 4, RecvSGEs: 4, InlineBytes: 128}
}

func (b *bench) end(c rdma.QueuePairConfig) *end {
	b.t.Helper()
	e := &end{t: b.t, b: b}
	e.cq = testenv.Opened(b.t, func() (rdma.CompletionQueue, error) {
		return b.dev.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: 256, Events: true})
	})
	if c.ReceiveCQ = e.cq; c.SendCQ == nil {
		c.SendCQ = e.cq
	}
	e.qp = testenv.Opened(b.t, func() (rdma.QueuePair, error) { return b.pd.NewQueuePair(c) })
	return e
}

const qkey = 0x11111111

func (e *end) modify(a rdma.Attributes, m rdma.Mask) {
	e.t.Helper()
	testenv.Must(e.t, e.qp.Modify(a, m|rdma.MaskState))
}

func (e *end) toInit() {
	e.t.Helper()
	a := rdma.Attributes{State: rdma.Init, Port: 1, Access: rdma.Remote, QKey: qkey}
	if e.qp.Config().Transport == rdma.UD {
		e.modify(a, rdma.MaskPKeyIndex|rdma.MaskPort|rdma.MaskQKey)
		return
	}
	if e.bare {
		a.Access = 0
	}
	e.modify(a, rdma.MaskPKeyIndex|rdma.MaskPort|rdma.MaskAccess)
}

// connect takes the queue pair to RTS, connected to queue pair peer on this device.
func (e *end) connect(peer uint32) { e.t.Helper(); e.connectWith(peer, 1) }

// connectWith does the same as connect, with rnr retries while the peer has no receive.
func (e *end) connectWith(peer uint32, rnr uint8) {
	e.t.Helper()
	e.toInit()
	if e.to.IsZero() {
		e.to = e.b.gid.GID
	}
	a := rdma.Attributes{State: rdma.ReadyToReceive, PathMTU: e.b.mtu, RemoteQPN: peer, ReceivePSN: 77, MaxRemoteReads: 4, MinRNRTimer: 1,
		Address: rdma.Address{GID: e.to, GIDIndex: uint16(e.b.gid.Index)}}
	b := rdma.Attributes{State: rdma.ReadyToSend, SendPSN: 77, Timeout: 14, Retries: 3, RNRRetries: rnr, MaxReads: 4}
	path := rdma.MaskAddress | rdma.MaskPathMTU | rdma.MaskRemoteQPN | rdma.MaskReceivePSN
	switch e.qp.Config().Transport {
	case rdma.RC:
		e.modify(a, path|rdma.MaskMaxRemoteReads|rdma.MaskMinRNRTimer)
		e.modify(b, rdma.MaskSendPSN|rdma.MaskTimeout|rdma.MaskRetries|rdma.MaskRNRRetries|rdma.MaskMaxReads)
	case rdma.UC:
		e.modify(a, path)
		e.modify(b, rdma.MaskSendPSN)
	default:
		e.modify(a, 0)
		e.modify(b, rdma.MaskSendPSN)
	}
}

// fill writes bytes that depend on their address, and returns them.
func (b *bench) fill(addr uint64, length uint32) []byte {
	bytes := b.region.At(addr, uint64(length))
	for i := range bytes {
		bytes[i] = byte(i*7 + i>>8 + int(addr>>12) + 1)
	}
	return bytes
}

// pair makes two connected ends.
func (b *bench) pair(c rdma.QueuePairConfig) (*end, *end) {
	b.t.Helper()
	x, y := b.end(c), b.end(c)
	x.connect(y.qp.QPN())
	y.connect(x.qp.QPN())
	return x, y
}

func (b *bench) sge(addr uint64, length uint32) rdma.SGE {
	return rdma.SGE{Addr: b.memory.Addr() + addr, Length: length, LKey: b.memory.LKey()}
}

func (e *end) send(r rdma.SendRequest, sges ...rdma.SGE) {
	e.t.Helper()
	r.SGEs = uint32(len(sges))
	if n, err := e.qp.PostSend([]rdma.SendRequest{r}, sges); n != 1 || err != nil {
		e.t.Fatalf("%d, %v", n, err)
	}
}

func (e *end) receive(id uint64, sges ...rdma.SGE) {
	e.t.Helper()
	if n, err := e.qp.PostReceive([]rdma.ReceiveRequest{{ID: id, SGEs: uint32(len(sges))}}, sges); n != 1 || err != nil {
		e.t.Fatalf("%d, %v", n, err)
	}
}

// completion waits for one completion.
func (e *end) completion() rdma.WorkCompletion {
	e.t.Helper()
	var got [1]rdma.WorkCompletion
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		n, err := e.cq.Spin(got[:], time.Millisecond)
		testenv.Must(e.t, err)
		if n == 1 {
			return got[0]
		}
		time.Sleep(100 * time.Microsecond) // Soft-RoCE also needs a processor
	}
	e.t.Fatal("no completion came in 10 s")
	return got[0]
}

// want waits for one completion and checks its ID and status.
func (e *end) want(id uint64, status rdma.Status) rdma.WorkCompletion {
	e.t.Helper()
	c := e.completion()
	if c.ID != id || c.Status != status {
		e.t.Fatalf("completion of %d with %v, want %d with %v", c.ID, c.Status, id, status)
	}
	if c.QPN != e.qp.QPN() {
		e.t.Errorf("completion of queue pair %d, not %d", c.QPN, e.qp.QPN())
	}
	return c
}

// quiet checks that no completion arrives for a while.
func (e *end) quiet() {
	e.t.Helper()
	var got [1]rdma.WorkCompletion
	time.Sleep(50 * time.Millisecond)
	if n, err := e.cq.Poll(got[:]); n != 0 || err != nil {
		e.t.Errorf("%d completions (%+v), %v", n, got, err)
	}
}
