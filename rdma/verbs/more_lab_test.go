//go:build verbs && cgo

package verbs

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
)

// TestMore: tests that concern neither transfers nor faults.
func TestMore(t *testing.T) {
	labenv.Guest(t)
	b := newBench(t, everything)
	b.run(map[string]func(*bench){"windows": windows, "allocations": allocations,
		"real addresses": realAddresses, "resize": resize, "query": query,
		"device": capabilities, "machine": examined, "counters": counted, "GIDs": gidTables, "handles": handles, "drain": drain})
}

// windows: a window is bound, used, invalidated by either side, and bound again with another key.
// Soft-RoCE does not enforce the bounds, so only tests use its windows.
func windows(b *bench) {
	dev := b.dev.(*device)
	dev.windows = false
	_, err := b.pd.NewWindow()
	dev.windows = true
	refused(b.t, err, rdma.ErrUnsupported, "register parts")

	first := b.bound()
	first.reach(rdma.Success)
	refused(b.t, first.y.qp.Close(), nil, "memory window")

	again := b.bound()
	old := again.rkey
	again.invalidate()
	again.bind()
	if again.rkey == old {
		b.t.Error("the key did not change")
	}
	again.reach(rdma.Success)
	again.rkey = old
	again.reach(rdma.RemoteAccess)

	ours := b.bound()
	ours.invalidate()
	ours.reach(rdma.RemoteAccess)

	theirs := b.bound()
	theirs.y.receive(7, b.sge(destination+1<<20, 64))
	theirs.x.send(rdma.SendRequest{ID: 1, Op: rdma.SendInvalidate, Flags: rdma.Signaled, Immediate: rdma.Invalidate(theirs.rkey)}, b.sge(source, 8))
	theirs.x.want(1, rdma.Success)
	if c := theirs.y.want(7, rdma.Success); c.Flags&rdma.HasInvalidated == 0 || c.Invalidated() != theirs.rkey {
		b.t.Errorf("flags %#x, invalidated %#x, want %#x", c.Flags, c.Invalidated(), theirs.rkey)
	}
	theirs.reach(rdma.RemoteAccess)

	x, _ := b.pair(config(rdma.RC))
	w := testenv.Opened(b.t, b.pd.NewWindow)
	plain := b.part(0, 4096, rdma.LocalWrite)
	refused(b.t, x.qp.Bind(1, w, plain, 0, 64, rdma.RemoteRead, 0), nil, "window bind")
	testenv.Must(b.t, x.qp.Bind(9, w, b.memory, b.memory.Addr()+everything-8, 16, rdma.RemoteRead, 0))
	if c := x.completion(); c.ID != 9 || c.Status == rdma.Success {
		b.t.Errorf("a window over the end of the memory: %v", c.Status)
	}
}

// window is a window that y has bound for x.
type window struct {
	x, y *end
	w    rdma.MemoryWindow
	rkey uint32
	addr uint64
}

func (b *bench) bound() *window {
	b.t.Helper()
	of := &window{addr: b.memory.Addr() + destination}
	of.x, of.y = b.pair(config(rdma.RC))
	of.w = testenv.Opened(b.t, b.pd.NewWindow) // must be closed before the queue pair
	of.bind()
	return of
}

func (w *window) bind() {
	w.y.t.Helper()
	testenv.Must(w.y.t, w.y.qp.Bind(4, w.w, w.y.b.memory, w.addr, 4096, rdma.RemoteWrite, rdma.Signaled))
	if c := w.y.want(4, rdma.Success); c.Kind != rdma.BindDone {
		w.y.t.Errorf("%v", c.Kind)
	}
	w.rkey = w.w.RKey()
}

// invalidate ends a binding. A window must be invalidated before it is bound again.
func (w *window) invalidate() {
	w.y.t.Helper()
	w.y.send(rdma.SendRequest{ID: 5, Op: rdma.LocalInvalidate, Flags: rdma.Signaled, Immediate: rdma.Invalidate(w.rkey)})
	if c := w.y.want(5, rdma.Success); c.Kind != rdma.LocalInvalidateDone {
		w.y.t.Errorf("%v", c.Kind)
	}
}

func (w *window) reach(want rdma.Status) {
	w.x.t.Helper()
	w.x.send(rdma.SendRequest{ID: 1, Op: rdma.Write, Flags: rdma.Signaled, RKey: w.rkey, RemoteAddr: w.addr}, w.x.b.sge(source, 8))
	w.x.want(1, want)
}

// allocations: Spin and PostSend allocate nothing to receive a message and to send the answer.
func allocations(b *bench) {
	x, y := b.pair(config(rdma.RC))
	sends := []rdma.SendRequest{{Op: rdma.Send, SGEs: 1, Flags: rdma.Signaled}}
	receives := []rdma.ReceiveRequest{{SGEs: 1}}
	from, to := []rdma.SGE{b.sge(source, 8)}, []rdma.SGE{b.sge(destination, 64)}
	got := make([]rdma.WorkCompletion, 4)
	failed := 0
	n := testenv.AllocsPerRun(b.t, 100, func() {
		for _, e := range []*end{x, y} {
			if n, err := e.qp.PostReceive(receives, to); n != 1 || err != nil {
				failed++
			}
		}
		if n, err := x.qp.PostSend(sends, from); n != 1 || err != nil {
			failed++
		}
		for n := 0; n == 0; {
			var err error
			if n, err = y.cq.Spin(got, 200*time.Microsecond); err != nil {
				failed++
			}
		}
		if n, err := y.qp.PostSend(sends, from); n != 1 || err != nil {
			failed++
		}
		for n := 0; n < 2; { // the SEND and the answer
			more, _ := x.cq.Spin(got, 200*time.Microsecond)
			n += more
		}
		for n := 0; n == 0; {
			n, _ = y.cq.Poll(got)
		}
		if y.cq.Arm(false) != nil {
			failed++
		}
	})
	if n != 0 || failed != 0 {
		b.t.Errorf("%v allocations a message, %d failures", n, failed)
	}
	if _, err := y.cq.Acknowledge(); err != nil {
		b.t.Error(err)
	}
}

// realAddresses: with a libibverbs that cannot register at address 0, everything works from the
// address of the registration.
func realAddresses(b *bench) {
	dev := b.dev.(*device)
	dev.atZero = false
	defer func() { dev.atZero = true }()
	b.memory = b.register(rdma.LocalWrite | rdma.Remote)
	if b.memory.Addr() == 0 {
		b.t.Error("the address is 0")
	}
	x, y := b.pair(config(rdma.RC))
	for _, op := range []rdma.Op{rdma.Send, rdma.Write, rdma.Read} {
		x.transfer(y, op, 4096)
	}
	want := bytes.Clone(b.fill(source, 32))
	x.send(rdma.SendRequest{ID: 3, Op: rdma.Write, Flags: rdma.Signaled | rdma.Inline, RKey: b.memory.RKey(), RemoteAddr: b.memory.Addr() + destination}, b.sge(source, 32))
	x.want(3, rdma.Success)
	if !bytes.Equal(b.region.At(destination, 32), want) {
		b.t.Error("the bytes are not those that were sent")
	}
	part := b.part(8192, 4096, rdma.LocalWrite)
	if part.Addr() != b.memory.Addr()+8192 || part.Length() != 4096 {
		b.t.Errorf("a part at %#x, of %d bytes", part.Addr(), part.Length())
	}
}

// resize: completions stay in a queue that is resized.
func resize(b *bench) {
	x, y := b.pair(config(rdma.RC))
	for id := range uint64(5) {
		x.send(rdma.SendRequest{ID: id, Op: rdma.Write, Flags: rdma.Signaled, RKey: b.memory.RKey(), RemoteAddr: b.memory.Addr() + destination}, b.sge(source, 8))
	}
	x.sendTo0(y)
	testenv.Must(b.t, x.cq.Resize(1000))
	if n := x.cq.Depth(); n < 1000 {
		b.t.Errorf("the depth is %d", n)
	}
	refused(b.t, x.cq.Resize(1), nil, "must fit")
	for id := range uint64(5) {
		x.want(id, rdma.Success)
	}
	x.want(5, rdma.Success)
}

// sendTo0 sends a message and waits until it has arrived.
func (x *end) sendTo0(y *end) {
	y.receive(7, x.b.sge(destination, 64))
	x.send(rdma.SendRequest{ID: 5, Op: rdma.Send, Flags: rdma.Signaled}, x.b.sge(source, 8))
	y.want(7, rdma.Success)
}

func query(b *bench) {
	x, y := b.pair(config(rdma.RC))
	a, err := x.qp.Query()
	testenv.Must(b.t, err)
	want := rdma.Attributes{State: rdma.ReadyToSend, Access: rdma.Remote, Port: 1, PathMTU: b.mtu, Timeout: 14, Retries: 3, RNRRetries: 1, MinRNRTimer: 1,
		RemoteQPN: y.qp.QPN(), MaxReads: 4, MaxRemoteReads: 4, Address: a.Address, CurrentState: a.CurrentState, SendPSN: a.SendPSN, ReceivePSN: a.ReceivePSN,
		PKeyIndex: 0, QKey: a.QKey}
	if a != want || a.Address.GID != b.gid.GID {
		b.t.Errorf("%+v, want %+v", a, want)
	}
	c := x.qp.Config()
	if c.SendDepth < 64 || c.RecvDepth < 64 || c.SendSGEs < 4 || c.InlineBytes < 128 || c.Transport != rdma.RC {
		b.t.Errorf("granted is %+v", c)
	}
}

func capabilities(b *bench) {
	c := b.dev.Capabilities()
	if c.Ports != 1 || c.MaxQueuePairs < 100 || c.MaxSGEs < 4 || !c.Atomics || c.WindowsType2 || c.MaxReads < 4 || c.NodeGUID == 0 {
		b.t.Errorf("%+v", c)
	}
	names, err := Provider{}.Devices()
	if err != nil || !slices.Contains(names, b.dev.Name()) {
		b.t.Errorf("%v, %v", names, err)
	}
	_, err = Provider{}.Open("no-such-device")
	refused(b.t, err, nil, b.dev.Name())
}

// gidTables: libibverbs and sysfs return the same table.
func gidTables(b *bench) {
	one, err1 := b.dev.GIDs(1)
	two, err2 := ReadGIDs(b.dev.Name(), 1)
	if err1 != nil || err2 != nil || !slices.Equal(one, two) || len(one) < 2 {
		b.t.Errorf("libibverbs: %v, %v; sysfs: %v, %v", one, err1, two, err2)
	}
}

// handles: numbers of closed address handles are reused, and a closed one is refused.
func handles(b *bench) {
	to := rdma.Address{GID: b.gid.GID, GIDIndex: uint16(b.gid.Index), Port: 1}
	first := testenv.Opened(b.t, func() (rdma.AddressHandle, error) { return b.pd.NewAddressHandle(to) })
	second := testenv.Opened(b.t, func() (rdma.AddressHandle, error) { return b.pd.NewAddressHandle(to) })
	if first.ID() == 0 || first.ID() == second.ID() {
		b.t.Errorf("%d and %d", first.ID(), second.ID())
	}
	testenv.Must(b.t, first.Close())
	x := b.end(config(rdma.UD))
	x.connect(0)
	_, err := x.post(rdma.SendRequest{Op: rdma.Send, Handle: first.ID(), RemoteQPN: 1, RemoteQKey: qkey}, b.sge(0, 8))
	refused(b.t, err, nil, "Handle")
	third := testenv.Opened(b.t, func() (rdma.AddressHandle, error) { return b.pd.NewAddressHandle(to) })
	if third.ID() != first.ID() {
		b.t.Errorf("the number %d was not used again, but %d", first.ID(), third.ID())
	}
	to.Port = 2
	_, err = b.pd.NewAddressHandle(to)
	refused(b.t, err, nil, "no port 2")
}

// drain: requests posted in SQD wait until RTS. (Soft-RoCE looks for work only when more is
// posted.)
func drain(b *bench) {
	x, y := b.pair(config(rdma.RC))
	x.modify(rdma.Attributes{State: rdma.SendDrained}, 0)
	b.occurs(rdma.SendQueueDrained)
	y.receive(7, b.sge(destination, 64))
	x.send(rdma.SendRequest{ID: 1, Op: rdma.Send, Flags: rdma.Signaled}, b.sge(source, 8))
	x.quiet()
	x.modify(rdma.Attributes{State: rdma.ReadyToSend}, 0)
	y.receive(8, b.sge(destination, 64))
	x.send(rdma.SendRequest{ID: 2, Op: rdma.Send, Flags: rdma.Signaled}, b.sge(source, 8))
	x.want(1, rdma.Success)
	x.want(2, rdma.Success)
	y.want(7, rdma.Success)
	y.want(8, rdma.Success)
}
