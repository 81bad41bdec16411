//go:build verbs && cgo

package verbs

import (
	"errors"
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
)

// TestFaults: each fault gives the documented status at the ends that it concerns, and flushes the
// requests posted after it.
func TestFaults(t *testing.T) {
	labenv.Guest(t)
	b := newBench(t, everything)
	tests := map[string]func(*bench){"flush order": flushes, "nobody there": nobody, "receiver not ready": notReady, "receive too short": tooShort,
		"receive without rights": receiveRights, "queue pair without rights": pairRights,
		"datagrams": lostDatagrams, "answer without a place": lostAnswers, "receive late": lateReceive}
	for name, f := range faults {
		tests[name] = func(b *bench) { b.fault(f) }
	}
	b.run(tests)
}

// fault is a request that fails at the end that posted it.
type fault struct {
	change func(b *bench, r *rdma.SendRequest, s *rdma.SGE)
	want   rdma.Status
	local  bool // the peer does not notice
}

var faults = map[string]fault{
	"wrong lkey":       {func(b *bench, r *rdma.SendRequest, s *rdma.SGE) { s.LKey += 0x100 }, rdma.LocalQPOperation, true},
	"local end":        {func(b *bench, r *rdma.SendRequest, s *rdma.SGE) { s.Addr = b.memory.Addr() + everything - 4 }, rdma.LocalProtection, true},
	"wrong rkey":       {func(b *bench, r *rdma.SendRequest, s *rdma.SGE) { r.RKey += 0x100 }, rdma.RemoteAccess, false},
	"remote end":       {func(b *bench, r *rdma.SendRequest, s *rdma.SGE) { r.RemoteAddr = b.memory.Addr() + everything - 4 }, rdma.RemoteAccess, false},
	"remote, far away": {func(b *bench, r *rdma.SendRequest, s *rdma.SGE) { r.RemoteAddr = 1 << 62 }, rdma.RemoteAccess, false},
	"read without rights": {func(b *bench, r *rdma.SendRequest, s *rdma.SGE) {
		r.Op, r.RKey = rdma.Read, b.part(0, 8192, rdma.LocalWrite|rdma.RemoteWrite).RKey()
	}, rdma.RemoteAccess, false},
	"write without rights": {func(b *bench, r *rdma.SendRequest, s *rdma.SGE) {
		r.RKey = b.part(0, 8192, rdma.LocalWrite|rdma.RemoteRead).RKey()
	}, rdma.RemoteAccess, false},
	"atomic without rights": {func(b *bench, r *rdma.SendRequest, s *rdma.SGE) {
		r.Op, r.RKey = rdma.FetchAdd, b.part(0, 8192, rdma.LocalWrite|rdma.RemoteRead).RKey()
	}, rdma.RemoteAccess, false},
	"atomic with a wrong rkey": {func(b *bench, r *rdma.SendRequest, s *rdma.SGE) {
		r.Op = rdma.FetchAdd
		r.RKey += 0x100
	}, rdma.RemoteAccess, false},
	"read with a wrong rkey": {func(b *bench, r *rdma.SendRequest, s *rdma.SGE) {
		r.Op = rdma.Read
		r.RKey += 0x100
	}, rdma.RemoteAccess, false},
	"outside of a part": {func(b *bench, r *rdma.SendRequest, s *rdma.SGE) {
		r.RKey = b.part(8192, 8192, rdma.LocalWrite|rdma.RemoteWrite).RKey()
		r.RemoteAddr = b.memory.Addr() + 8192 - 1
	}, rdma.RemoteAccess, false},
}

// part registers a part of the region.
func (b *bench) part(addr, length uint64, a rdma.Access) rdma.MemoryRegion {
	return testenv.Opened(b.t, func() (rdma.MemoryRegion, error) { return b.pd.RegisterPart(b.region, addr, length, a) })
}

func (b *bench) fault(f fault) {
	x, y := b.pair(config(rdma.RC))
	y.receive(70, b.sge(destination, 64))
	r := rdma.SendRequest{ID: 1, Op: rdma.Write, RKey: b.memory.RKey(), RemoteAddr: b.memory.Addr() + 4096}
	s := b.sge(source, 8)
	f.change(b, &r, &s)
	x.send(r, s)
	x.send(rdma.SendRequest{ID: 2, Op: rdma.Send, Flags: rdma.Signaled}, b.sge(source, 8))
	want := f.want
	if f.local {
		want = b.local(want)
	}
	c := x.want(1, want)
	if err := c.Err(); !errors.Is(err, want) {
		b.t.Error(err)
	}
	x.want(2, rdma.WorkFlushed)
	x.state(rdma.Error)
	if !f.local {
		y.want(70, rdma.WorkFlushed)
		y.state(rdma.Error)
	}
}

// local returns the status of a request that fails on Soft-RoCE's own side when it first looks at
// the memory. Since 6.3 the queue pair is in error before the completion is made, so the cause is
// lost. For memory with a wrong lkey, 6.1 reports LocalQPOperation and not LocalProtection.
func (b *bench) local(s rdma.Status) rdma.Status {
	if labenv.Kernel(b.t) == labenv.Linux61 {
		return s
	}
	return rdma.WorkFlushed
}

func (e *end) state(want rdma.State) {
	e.t.Helper()
	if s, err := e.qp.State(); s != want || err != nil {
		e.t.Errorf("state %v, %v; want %v", s, err, want)
	}
}

// flushes: requests after a failed one are flushed in the order of posting, also those posted
// later, and the queue pair works again after a reset. (The kernel does not tell Soft-RoCE of
// receives posted later, so it keeps them.)
func flushes(b *bench) {
	x, y := b.pair(config(rdma.RC))
	for id := range uint64(5) {
		x.receive(100+id, b.sge(destination, 64))
	}
	first := b.local(rdma.LocalQPOperation)
	bad := b.sge(source, 8)
	bad.LKey += 0x100
	requests, sges := []rdma.SendRequest{{ID: 0, Op: rdma.Send, SGEs: 1}}, []rdma.SGE{bad}
	for id := uint64(1); id < 10; id++ {
		requests = append(requests, rdma.SendRequest{ID: id, Op: rdma.Send, SGEs: 1}) // not signaled, but failures complete
		sges = append(sges, b.sge(source, 8))
	}
	if n, err := x.qp.PostSend(requests, sges); n != len(requests) || err != nil {
		b.t.Fatalf("%d, %v", n, err)
	}
	sends, receives := uint64(0), uint64(100)
	for range len(requests) + 5 {
		c := x.completion()
		switch {
		case c.ID == 0 && sends == 0 && c.Status == first, c.ID == sends && sends > 0 && c.Status == rdma.WorkFlushed:
			sends++
		case c.ID == receives && c.Status == rdma.WorkFlushed:
			receives++
		default:
			b.t.Fatalf("completion of %d with %v, after sends up to %d and receives up to %d", c.ID, c.Status, sends, receives)
		}
	}
	x.send(rdma.SendRequest{ID: 50, Op: rdma.Send}, b.sge(source, 8))
	x.want(50, rdma.WorkFlushed)
	for _, e := range []*end{x, y} {
		e.modify(rdma.Attributes{State: rdma.Reset}, 0)
	}
	x.connect(y.qp.QPN())
	y.connect(x.qp.QPN())
	x.transfer(y, rdma.Send, 4096)
}

// nobody: if the peer does not answer, the request fails when the retries are used up.
func nobody(b *bench) {
	x := b.end(config(rdma.RC))
	x.connect(0xfffffe)
	x.send(rdma.SendRequest{ID: 1, Op: rdma.Send}, b.sge(source, 8))
	x.want(1, rdma.RetryExceeded)
	x.state(rdma.Error)
}

func notReady(b *bench) {
	x, y := b.pair(config(rdma.RC))
	x.send(rdma.SendRequest{ID: 1, Op: rdma.Send}, b.sge(source, 8))
	x.want(1, rdma.ReceiverNotReadyExceeded)
	y.state(rdma.ReadyToSend) // the peer is not at fault
}

// tooShort: if the receive is too short, Soft-RoCE fails both sides as if the receive were
// malformed. A card would report RemoteInvalidRequest and LocalLength.
func tooShort(b *bench) {
	x, y := b.pair(config(rdma.RC))
	y.receive(70, b.sge(destination, 100))
	x.send(rdma.SendRequest{ID: 1, Op: rdma.Send}, b.sge(source, 101))
	x.want(1, rdma.RemoteOperation)
	y.want(70, rdma.LocalQPOperation)
}

// receiveRights: a receive into memory that the device may not write fails at both ends.
func receiveRights(b *bench) {
	x, y := b.pair(config(rdma.RC))
	readable := b.part(destination, 4096, 0)
	y.receive(70, rdma.SGE{Addr: b.memory.Addr() + destination, Length: 64, LKey: readable.LKey()})
	x.send(rdma.SendRequest{ID: 1, Op: rdma.Send}, b.sge(source, 8))
	x.want(1, rdma.RemoteOperation)
	y.want(70, rdma.LocalQPOperation)
}

// lostAnswers: a request fails if its local memory cannot take the answer. The peer has executed
// it, and stays connected.
func lostAnswers(b *bench) {
	for _, op := range []rdma.Op{rdma.Read, rdma.FetchAdd, rdma.CompareSwap} {
		x, y := b.pair(config(rdma.RC))
		s := b.sge(source, 8)
		s.LKey += 0x100
		x.send(rdma.SendRequest{ID: 1, Op: op, RKey: b.memory.RKey(), RemoteAddr: b.memory.Addr() + destination}, s)
		x.want(1, rdma.LocalProtection)
		x.state(rdma.Error)
		y.state(rdma.ReadyToSend)
	}
}

// lateReceive: a message without a receive is sent again until there is one.
func lateReceive(b *bench) {
	x, y := b.end(config(rdma.RC)), b.end(config(rdma.RC))
	x.connectWith(y.qp.QPN(), 7)
	y.connect(x.qp.QPN())
	x.send(rdma.SendRequest{ID: 1, Op: rdma.Send, Flags: rdma.Signaled}, b.sge(source, 8))
	x.quiet()
	y.receive(7, b.sge(destination, 64))
	x.want(1, rdma.Success)
	y.want(7, rdma.Success)
}

// pairRights: a request is invalid if the memory allows it and the queue pair does not.
func pairRights(b *bench) {
	for _, op := range []rdma.Op{rdma.Write, rdma.Read, rdma.FetchAdd, rdma.CompareSwap} {
		x, y := b.end(config(rdma.RC)), b.end(config(rdma.RC))
		y.bare = true
		x.connect(y.qp.QPN())
		y.connect(x.qp.QPN())
		x.send(rdma.SendRequest{ID: 1, Op: op, RKey: b.memory.RKey(), RemoteAddr: b.memory.Addr() + destination}, b.sge(source, 8))
		x.want(1, rdma.RemoteInvalidRequest)
		x.state(rdma.Error)
	}
}

// lostDatagrams: a datagram with a wrong Q_Key, to no queue pair, or without a posted receive is
// lost without an error, and the next one arrives.
func lostDatagrams(b *bench) {
	x, y := b.end(config(rdma.UD)), b.end(config(rdma.UD))
	x.connect(0)
	y.connect(0)
	handle := testenv.Opened(b.t, func() (rdma.AddressHandle, error) {
		return b.pd.NewAddressHandle(rdma.Address{GID: b.gid.GID, GIDIndex: uint16(b.gid.Index), Port: 1})
	})
	good := rdma.SendRequest{ID: 1, Op: rdma.Send, Flags: rdma.Signaled, Handle: handle.ID(), RemoteQPN: y.qp.QPN(), RemoteQKey: qkey}
	for _, change := range []func(*rdma.SendRequest){
		func(*rdma.SendRequest) {}, // there is no receive
		func(r *rdma.SendRequest) { r.RemoteQKey++ },
		func(r *rdma.SendRequest) { r.RemoteQPN = 0xfffffe },
	} {
		r := good
		change(&r)
		x.send(r, b.sge(source, 8))
		x.want(1, rdma.Success)
	}
	y.quiet()
	y.receive(7, b.sge(destination, 4096))
	x.send(good, b.sge(source, 8))
	x.want(1, rdma.Success)
	y.want(7, rdma.Success)
}
