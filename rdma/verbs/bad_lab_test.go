//go:build verbs && cgo

package verbs

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
)

// TestRefusals: an impossible call fails with an error that says why, and the object still works
// afterwards.
func TestRefusals(t *testing.T) {
	labenv.Guest(t)
	b := newBench(t, everything)
	b.run(map[string]func(*bench){"states": wrongStates, "full": fullQueues, "elements": elements, "operations": wrongOperations, "inline": wrongInline,
		"changes": wrongChanges, "registrations": wrongRegistrations, "registrations ended": endedRegistrations, "sizes": wrongSizes, "ports": wrongPorts, "closing": closing, "closed": closed})
}

// refused checks that an error wraps another one and contains a text.
func refused(t *testing.T, err, is error, says string) {
	t.Helper()
	if err == nil || is != nil && !errors.Is(err, is) || !strings.Contains(err.Error(), says) {
		t.Errorf("%v, want %v that says %q", err, is, says)
	}
}

func (e *end) post(r rdma.SendRequest, sges ...rdma.SGE) (int, error) {
	r.SGEs = uint32(len(sges))
	return e.qp.PostSend([]rdma.SendRequest{r}, sges)
}

func wrongStates(b *bench) {
	e := b.end(config(rdma.RC))
	_, err := e.qp.PostReceive(make([]rdma.ReceiveRequest, 1), nil)
	refused(b.t, err, rdma.ErrState, "from INIT on")
	e.toInit()
	e.receive(1, b.sge(0, 8))
	_, err = e.post(rdma.SendRequest{Op: rdma.Send}, b.sge(0, 8))
	refused(b.t, err, rdma.ErrState, "from RTS on")
	if s, err := e.qp.State(); s != rdma.Init || err != nil {
		b.t.Errorf("%v, %v", s, err)
	}
	receiving := b.end(config(rdma.UD))
	receiving.toInit()
	receiving.modify(rdma.Attributes{State: rdma.ReadyToReceive}, 0)
	_, err = receiving.post(rdma.SendRequest{Op: rdma.Send}, b.sge(0, 8))
	refused(b.t, err, rdma.ErrState, "from RTS on")
}

// fullQueues: a full queue returns how many requests it accepted, and those complete.
func fullQueues(b *bench) {
	x, y := b.pair(config(rdma.RC))
	c := x.qp.Config()
	receives := make([]rdma.ReceiveRequest, c.RecvDepth*4)
	n, err := y.qp.PostReceive(receives, nil)
	refused(b.t, err, unix.ENOMEM, "is full")
	if n < c.RecvDepth || n == len(receives) {
		b.t.Errorf("a queue of %d took %d receives", c.RecvDepth, n)
	}
	sends := make([]rdma.SendRequest, c.SendDepth*4)
	for i := range sends {
		sends[i] = rdma.SendRequest{ID: uint64(i), Op: rdma.Write, Flags: rdma.Signaled, RKey: b.memory.RKey(), RemoteAddr: b.memory.Addr()}
	}
	// A long request keeps the others waiting.
	x.send(rdma.SendRequest{ID: 1000, Op: rdma.Write, Flags: rdma.Signaled, RKey: b.memory.RKey(), RemoteAddr: b.memory.Addr() + destination}, b.sge(source, 1<<20))
	n, err = x.qp.PostSend(sends, nil)
	if err != nil {
		refused(b.t, err, unix.ENOMEM, "is full")
	}
	x.want(1000, rdma.Success)
	for id := range uint64(min(n, 200)) {
		x.want(id, rdma.Success)
	}
}

func elements(b *bench) {
	x, _ := b.pair(config(rdma.RC))
	c := x.qp.Config()
	many := make([]rdma.SGE, c.SendSGEs+c.RecvSGEs+1)
	for i := range many {
		many[i] = b.sge(0, 8)
	}
	_, err := x.post(rdma.SendRequest{Op: rdma.Send}, many...)
	refused(b.t, err, unix.EINVAL, fmt.Sprintf("it takes %d elements", c.SendSGEs))
	_, err = x.qp.PostReceive([]rdma.ReceiveRequest{{SGEs: uint32(len(many))}}, many)
	refused(b.t, err, unix.EINVAL, "at most")
	// The second request needs more elements than the first leaves: only the first is posted.
	pair := []rdma.SendRequest{{ID: 1, Op: rdma.Write, SGEs: 1, Flags: rdma.Signaled, RKey: b.memory.RKey(), RemoteAddr: b.memory.Addr() + destination}, {Op: rdma.Write, SGEs: 2}}
	n, err := x.qp.PostSend(pair, many[:2])
	refused(b.t, err, unix.EINVAL, "left of the list")
	if n != 1 {
		b.t.Errorf("%d were posted", n)
	}
	x.want(1, rdma.Success)
	n, err = x.qp.PostReceive([]rdma.ReceiveRequest{{SGEs: 1}, {SGEs: 2}}, many[:2])
	refused(b.t, err, unix.EINVAL, "left of the list")
	if n != 1 {
		b.t.Errorf("%d receives were posted", n)
	}
}

func wrongOperations(b *bench) {
	for transport, ops := range map[rdma.Transport][]rdma.Op{
		rdma.RC: {8, 10, 31, 32, 1 << 31}, // bind, TSO, a driver's, none
		rdma.UC: {rdma.Read, rdma.CompareSwap, rdma.FetchAdd, rdma.SendInvalidate, 8},
		rdma.UD: {rdma.Write, rdma.WriteImmediate, rdma.Read, rdma.CompareSwap, rdma.LocalInvalidate, 8, 10},
	} {
		x := b.end(config(transport))
		x.connect(x.qp.QPN())
		for _, op := range ops {
			_, err := x.post(rdma.SendRequest{Op: op}, b.sge(0, 8))
			refused(b.t, err, rdma.ErrUnsupported, fmt.Sprintf("by %v: %v", transport, op))
		}
		if transport == rdma.UD {
			for _, handle := range []uint32{0, 9, 1<<16 - 1, 1 << 16, 1<<32 - 1} {
				_, err := x.post(rdma.SendRequest{Op: rdma.Send, Handle: handle}, b.sge(0, 8))
				refused(b.t, err, unix.EINVAL, "Handle")
			}
		}
	}
	x, _ := b.pair(config(rdma.RC))
	_, err := x.post(rdma.SendRequest{Op: rdma.FetchAdd, RKey: b.memory.RKey(), RemoteAddr: b.memory.Addr() + 4}, b.sge(0, 8))
	refused(b.t, err, unix.EINVAL, "multiples of 8")
}

// wrongInline: the library reads inline data, so the provider refuses addresses outside of the
// region.
func wrongInline(b *bench) {
	x, _ := b.pair(config(rdma.RC))
	size := b.memory.Length()
	for _, sge := range []rdma.SGE{b.sge(size, 1), b.sge(size-1, 2), b.sge(1<<63, 8), {Addr: 1<<64 - 4 + b.memory.Addr(), Length: 8, LKey: b.memory.LKey()},
		{Addr: b.memory.Addr(), Length: 8, LKey: b.memory.LKey() + 1}} {
		_, err := x.post(rdma.SendRequest{Op: rdma.Send, Flags: rdma.Inline}, sge)
		refused(b.t, err, unix.EFAULT, "inline data")
	}
	_, err := x.post(rdma.SendRequest{Op: rdma.Send, Flags: rdma.Inline}, b.sge(0, uint32(x.qp.Config().InlineBytes)+1))
	refused(b.t, err, unix.EINVAL, "bytes inline")
}

func wrongChanges(b *bench) {
	e := b.end(config(rdma.RC))
	err := e.qp.Modify(rdma.Attributes{State: rdma.ReadyToSend}, rdma.MaskState)
	refused(b.t, err, rdma.ErrState, "from RESET to RTS")
	e.toInit()
	a := rdma.Attributes{State: rdma.ReadyToReceive, PathMTU: b.mtu, Address: rdma.Address{GID: b.gid.GID, GIDIndex: uint16(b.gid.Index)}}
	all := rdma.MaskState | rdma.MaskAddress | rdma.MaskPathMTU | rdma.MaskRemoteQPN | rdma.MaskReceivePSN | rdma.MaskMaxRemoteReads | rdma.MaskMinRNRTimer
	for says, change := range map[string]func(*rdma.Attributes){
		"RemoteQPN 0x1000000": func(a *rdma.Attributes) { a.RemoteQPN = 1 << 24 },
		"raise the MTU":       func(a *rdma.Attributes) { a.PathMTU = rdma.MTU4096 },
		"none of the five":    func(a *rdma.Attributes) { a.PathMTU = 9 },
		"GID is missing":      func(a *rdma.Attributes) { a.Address.GID = rdma.GID{} },
		"GID table is empty":  func(a *rdma.Attributes) { a.Address.GIDIndex = 200 },
		"does not answer":     func(a *rdma.Attributes) { a.Address.GID = rdma.GIDOf(elsewhere) },
	} {
		wrong := a
		change(&wrong)
		refused(b.t, e.qp.Modify(wrong, all), nil, says)
	}
	if s, err := e.qp.State(); s != rdma.Init || err != nil {
		b.t.Errorf("%v, %v", s, err)
	}
}

func wrongRegistrations(b *bench) {
	_, err := b.pd.Register(b.region, rdma.RemoteWrite)
	refused(b.t, err, nil, "local write")
	for _, a := range []rdma.Access{1 << 5, rdma.LocalWrite | 1<<6, rdma.EveryAccess | 1<<31} { // such as on-demand paging
		_, err := b.pd.Register(b.region, a)
		refused(b.t, err, nil, "is none of them")
	}
	for _, part := range [][2]uint64{{0, 0}, {0, everything + 1}, {everything, 1}, {1 << 63, 1 << 63}, {1, 1<<64 - 1}} {
		_, err := b.pd.RegisterPart(b.region, part[0], part[1], rdma.LocalWrite)
		refused(b.t, err, nil, "the region has")
	}
	err = b.region.Close()
	refused(b.t, err, nil, "RDMA device "+b.dev.Name())
}

// endedRegistrations: a registration ends once, and not while a window is bound to it. Its keys are
// then invalid.
func endedRegistrations(b *bench) {
	x, y := b.pair(config(rdma.RC))
	m := b.register(rdma.EveryAccess)
	w := testenv.Opened(b.t, b.pd.NewWindow)
	testenv.Must(b.t, y.qp.Bind(4, w, m, m.Addr(), 4096, rdma.RemoteWrite, rdma.Signaled))
	y.want(4, rdma.Success)
	refused(b.t, m.Close(), unix.EINVAL, "memory windows")
	inline := rdma.SendRequest{ID: 1, Op: rdma.Write, Flags: rdma.Signaled | rdma.Inline, RKey: m.RKey(), RemoteAddr: m.Addr() + destination}
	local := rdma.SGE{Addr: m.Addr(), Length: 8, LKey: m.LKey()}
	x.send(inline, local)
	x.want(1, rdma.Success)

	testenv.Must(b.t, errors.Join(w.Close(), m.Close(), m.Close()))
	_, err := x.post(inline, local)
	refused(b.t, err, unix.EFAULT, "inline data")
	x.send(rdma.SendRequest{ID: 2, Op: rdma.Write, RKey: m.RKey(), RemoteAddr: m.Addr()}, b.sge(0, 8))
	x.want(2, rdma.RemoteAccess)
	again, _ := b.pair(config(rdma.RC))
	again.send(rdma.SendRequest{ID: 3, Op: rdma.Write, RKey: b.memory.RKey(), RemoteAddr: b.memory.Addr()}, local)
	again.want(3, b.local(rdma.LocalQPOperation))
}

// wrongPorts: the device has one port, number 1.
func wrongPorts(b *bench) {
	for _, number := range []uint8{0, 2, 255} {
		_, err := b.dev.Port(number)
		refused(b.t, err, nil, fmt.Sprintf("no port %d", number))
		_, err = b.dev.GIDs(number)
		refused(b.t, err, nil, fmt.Sprintf("no port %d", number))
		if table, err := ReadGIDs(b.dev.Name(), number); len(table) != 0 || err != nil {
			b.t.Errorf("%v, %v", table, err)
		}
	}
}

func wrongSizes(b *bench) {
	_, err := b.dev.NewCompletionQueue(rdma.CompletionQueueConfig{})
	refused(b.t, err, nil, "1 to")
	_, err = b.dev.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: 1 << 30})
	refused(b.t, err, nil, "1 to")
	_, err = b.dev.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: 1, Vector: 1 << 20})
	refused(b.t, err, nil, "vector")
	cq := b.end(config(rdma.RC)).cq
	for _, depth := range []int{-1, 0, b.dev.Capabilities().MaxCompletions + 1} {
		refused(b.t, cq.Resize(depth), nil, "1 to")
	}
	for _, transport := range []rdma.Transport{rdma.RC, rdma.UC, rdma.UD} {
		for says, change := range map[string]func(*rdma.QueuePairConfig){
			"SendDepth":     func(c *rdma.QueuePairConfig) { c.SendDepth = 1 << 30 },
			"RecvDepth":     func(c *rdma.QueuePairConfig) { c.RecvDepth = -1 },
			"SendSGEs":      func(c *rdma.QueuePairConfig) { c.SendSGEs = 1 << 20 },
			"RecvSGEs":      func(c *rdma.QueuePairConfig) { c.RecvSGEs = 1 << 20 },
			"InlineBytes":   func(c *rdma.QueuePairConfig) { c.InlineBytes = 1 << 30 },
			"65536 bytes":   func(c *rdma.QueuePairConfig) { c.InlineBytes = 1 << 16 },
			"none of RC":    func(c *rdma.QueuePairConfig) { c.Transport = 9 },
			"SendCQ":        func(c *rdma.QueuePairConfig) { c.SendCQ = nil },
			"and ReceiveCQ": func(c *rdma.QueuePairConfig) { c.ReceiveCQ = nil },
		} {
			c := config(transport)
			c.SendCQ, c.ReceiveCQ = cq, cq
			change(&c)
			_, err := b.pd.NewQueuePair(c)
			refused(b.t, err, nil, says)
		}
	}
	_, err = b.pd.NewSharedReceiveQueue(rdma.SharedReceiveQueueConfig{})
	refused(b.t, err, nil, "1 to")
}

// closing: an object in use cannot be closed, and the error names its user.
func closing(b *bench) {
	e := b.end(config(rdma.RC))
	name := fmt.Sprintf("RC queue pair %d", e.qp.QPN())
	refused(b.t, b.pd.Close(), nil, name)
	refused(b.t, b.pd.Close(), nil, "memory of")
	refused(b.t, e.cq.Close(), nil, name)
	refused(b.t, b.dev.Close(), nil, "protection domain")
	for range 2 {
		testenv.Check(b.t, errors.Join(e.qp.Close(), e.cq.Close()))
	}
}

// closed: calls on closed objects fail and do no harm.
func closed(b *bench) {
	e := b.end(config(rdma.RC))
	testenv.Must(b.t, errors.Join(e.qp.Close(), e.cq.Close()))
	_, err1 := e.post(rdma.SendRequest{Op: rdma.Send}, b.sge(0, 8))
	_, err2 := e.qp.PostReceive(make([]rdma.ReceiveRequest, 1), nil)
	_, err3 := e.cq.Poll(make([]rdma.WorkCompletion, 1))
	_, err4 := e.cq.Spin(make([]rdma.WorkCompletion, 1), 1)
	_, err5 := e.cq.Acknowledge()
	_, err6 := e.qp.State()
	for _, err := range []error{err1, err2, err3, err4, err5, err6, e.cq.Arm(false), e.cq.Resize(9), e.qp.Modify(rdma.Attributes{}, rdma.MaskState)} {
		refused(b.t, err, nil, "is closed")
	}
}
