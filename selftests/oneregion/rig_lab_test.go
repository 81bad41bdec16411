package oneregion

import (
	"net/netip"
	"runtime"
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/msg"
	"github.com/unifiedd/unifiedd/rdma/verbs"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// rig has the region and the holders of frames for its devices. At the end of the test, it closes
// each device, and then every frame must be in the pool.
type rig struct {
	testing.TB
	region *umem.Region
	book   *umem.Book
	worker *umem.Holder
}

func newRig(t testing.TB) *rig {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	region, err := umem.Open(umem.Config{Size: 16 << 20, Control: 2 << 20})
	testenv.Must(t, err)
	r := &rig{TB: t, region: region, book: region.NewBook("worker")}
	if r.worker, err = r.book.NewHolder(umem.OwnerWorker, "worker"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.worker.Close()
		if c, err := region.Audit(); err != nil || c.Of(umem.OwnerPool) != region.Frames() {
			t.Errorf("the pool has %d of %d frames at the end: %v", c.Of(umem.OwnerPool), region.Frames(), err)
		}
		r.must(r.book.Close())
		r.must(region.Close())
	})
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	testenv.Check(r, err)
}

// made fails the test if it could not make a thing, and closes it at the end.
func made[T interface{ Close() error }](r *rig, thing T, err error) T {
	r.Helper()
	testenv.Must(r, err)
	r.Cleanup(func() { r.must(thing.Close()) })
	return thing
}

// registered checks that n devices have registered the region.
func (r *rig) registered(n int) {
	r.Helper()
	if names := r.region.Registered(); len(names) != n {
		r.Errorf("the region is registered with %q", names)
	}
}

func (r *rig) supply(p umem.Port, n int) {
	r.Helper()
	fs := make([]umem.Frame, n)
	if got := r.worker.Take(fs); got < n {
		r.Fatalf("the pool had %d of %d frames", got, n)
	}
	if took := p.Supply(fs); took != n {
		r.Fatalf("Supply took %d of %d frames", took, n)
	}
	testenv.Must(r, p.Kick())
}

// openCard opens the receiving card, with packets at landing.
func (r *rig) openCard(pair *testenv.Pair) (card *xdp.Interface) {
	r.Helper()
	var err error
	pair.B.Do(r, func() {
		card, err = xdp.Open(xdp.Config{Interface: pair.B.Ifname, Holder: r.worker, Direction: xdp.Receive, RingSize: 512, Shape: umem.Shape{Headroom: 284}})
	})
	return made(r, card, err)
}

// disk is a queue with the NVMe disk as its target.
type disk struct {
	*nvme.Queue
	target uint32
}

func (r *rig) openDisk() disk {
	r.Helper()
	target, err := nvme.OpenTarget(nvme.TargetConfig{Path: labenv.Disk, Size: 1 << 20, Force: true})
	made(r, target, err)
	q, err := nvme.Open(nvme.Config{Worker: r.worker, Depth: packets})
	made(r, q, err)
	n, err := q.Add(target)
	testenv.Must(r, err)
	return disk{q, n}
}

// openRDMA makes two ports of queue pairs that are connected with each other.
func (r *rig) openRDMA() (out, in *msg.Port) {
	r.Helper()
	const address = "10.79.0.1"
	name := labenv.SoftRoCE(r, "virtio0", address+"/24")
	dev, err := verbs.Provider{}.Open(name)
	made(r, dev, err)
	pd, err := dev.NewProtectionDomain()
	made(r, pd, err)
	memory, err := pd.Register(r.region, rdma.LocalWrite)
	made(r, memory, err)
	a, b := r.queuePair(pd), r.queuePair(pd)
	r.connect(dev, a, b.QPN(), address)
	r.connect(dev, b, a.QPN(), address)
	return r.openPort(memory, a), r.openPort(memory, b)
}

func (r *rig) queuePair(pd rdma.ProtectionDomain) rdma.QueuePair {
	r.Helper()
	c := rdma.QueuePairConfig{Transport: rdma.RC, SendDepth: packets, RecvDepth: packets, SendSGEs: 1, RecvSGEs: 1}
	var err error
	for _, q := range []*rdma.CompletionQueue{&c.SendCQ, &c.ReceiveCQ} {
		if *q, err = pd.Device().NewCompletionQueue(rdma.CompletionQueueConfig{Depth: packets}); err != nil {
			r.Fatal(err)
		}
	}
	qp, err := pd.NewQueuePair(c)
	testenv.Must(r, err)
	return qp
}

// connect brings a queue pair to RTS.
func (r *rig) connect(dev rdma.Device, qp rdma.QueuePair, peer uint32, address string) {
	r.Helper()
	table, err := dev.GIDs(1)
	testenv.Must(r, err)
	gid, err := rdma.ChooseGID(table, netip.MustParseAddr(address))
	testenv.Must(r, err)
	port, err := dev.Port(1)
	testenv.Must(r, err)
	for _, step := range []struct {
		a rdma.Attributes
		m rdma.Mask
	}{
		{rdma.Attributes{State: rdma.Init, Port: 1}, rdma.MaskPKeyIndex | rdma.MaskPort | rdma.MaskAccess},
		{rdma.Attributes{State: rdma.ReadyToReceive, PathMTU: port.ActiveMTU, RemoteQPN: peer, MaxRemoteReads: 1, MinRNRTimer: 12,
			Address: rdma.Address{GID: gid.GID, GIDIndex: uint16(gid.Index), HopLimit: 64, Port: 1}},
			rdma.MaskAddress | rdma.MaskPathMTU | rdma.MaskRemoteQPN | rdma.MaskReceivePSN | rdma.MaskMaxRemoteReads | rdma.MaskMinRNRTimer},
		{rdma.Attributes{State: rdma.ReadyToSend, Timeout: 14, Retries: 6, RNRRetries: 6, MaxReads: 1},
			rdma.MaskTimeout | rdma.MaskRetries | rdma.MaskRNRRetries | rdma.MaskSendPSN | rdma.MaskMaxReads},
	} {
		testenv.Must(r, qp.Modify(step.a, step.m|rdma.MaskState))
	}
}

// openPort makes a port that owns the queue pair.
func (r *rig) openPort(memory rdma.MemoryRegion, qp rdma.QueuePair) *msg.Port {
	r.Helper()
	c := qp.Config()
	p, err := msg.Open(msg.Config{Name: r.Name(), Worker: r.worker, Memory: memory, SendCQ: c.SendCQ, ReceiveCQ: c.ReceiveCQ,
		QueuePairs: []msg.Peer{{QueuePair: qp, Message: 4096}}, Landing: inbox})
	return made(r, p, err)
}
