package roce

import (
	"testing"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/umem"
)

// TestNoAllocations: sending and receiving messages of each kind allocates nothing, whether they
// are gathered or copied, placed or loaned.
func TestNoAllocations(t *testing.T) {
	g := newRig(t, rigOptions{mtu: 4200})
	for name, c := range map[string]struct {
		config rdma.QueuePairConfig
		op     rdma.Op
		flags  rdma.Flags
		size   int
	}{
		"SEND": {config(rdma.RC), rdma.Send, 0, 64}, "inline": {config(rdma.RC), rdma.Send, rdma.Inline, 64}, "long": {config(rdma.RC), rdma.Send, 0, 20_000},
		"WRITE": {config(rdma.RC), rdma.WriteImmediate, 0, 8192}, "READ": {config(rdma.RC), rdma.Read, 0, 8192}, "UC": {config(rdma.UC), rdma.Send, 0, 4096},
		"lent": {lender(64), rdma.Send, 0, 5000}, "own": {config(rdma.RC), rdma.Send, 0, 20_000}, "spread": {config(rdma.RC), rdma.Send, 0, 20_000},
	} {
		t.Run(name, func(t *testing.T) {
			on := *g
			on.TB = t
			a, b := on.connected(c.config, rdma.MTU4096)
			switch name {
			case "own":
				s := *g.sides[0]
				s.rig = &on
				a, b = s.newEnd(c.config), s.newEnd(c.config)
				on.must(a.lead(attributes(&s, b.qp.QPN(), rdma.MTU4096, &s)))
				on.must(b.lead(attributes(&s, a.qp.QPN(), rdma.MTU4096, &s)))
			case "spread":
				g.copyAll(true)
				defer g.copyAll(false)
			}
			m := messenger{a: a, b: b, op: c.op, flags: c.flags, size: c.size}
			m.prepare()
			m.exchange()
			if n := testing.AllocsPerRun(100, m.exchange); n != 0 {
				t.Errorf("%v allocations for a message", n)
			}
		})
	}
}

// copyAll makes the devices copy all payloads they send, or gather them again.
func (g *rig) copyAll(on bool) {
	for _, s := range g.sides {
		s.dev.locked(func() { s.dev.datapath.gathers = !on })
	}
}

// messenger sends messages one by one.
type messenger struct {
	a, b     *end
	op       rdma.Op
	flags    rdma.Flags
	size     int
	requests [1]rdma.SendRequest
	receives [1]rdma.ReceiveRequest
	sges     [2]rdma.SGE
	got      [4]rdma.WorkCompletion
	frames   [8]umem.Frame
	lender   rdma.Lender
}

func (m *messenger) prepare() {
	m.requests[0] = rdma.SendRequest{Op: m.op, Flags: m.flags, SGEs: 1, RemoteAddr: m.b.base, RKey: m.b.memory.RKey()}
	m.receives[0].SGEs = 1
	m.sges = [2]rdma.SGE{m.a.sge(0, m.size), m.b.sge(0, m.size)}
	if m.b.qp.Config().Loans > 0 {
		m.lender = m.b.qp.(rdma.Lender)
	}
}

func (m *messenger) exchange() {
	takes := m.op != rdma.Read
	if takes && m.lender == nil {
		if n, err := m.b.qp.PostReceive(m.receives[:], m.sges[1:]); n != 1 {
			m.b.Fatal(err)
		}
	}
	if n, err := m.a.qp.PostSend(m.requests[:], m.sges[:1]); n != 1 {
		m.a.Fatal(err)
	}
	if takes {
		m.wait(m.b)
	}
	if m.lender != nil {
		m.lender.Return(m.frames[:m.lender.Loaned(m.frames[:])])
	}
	m.wait(m.a)
}

// wait waits for a completion.
func (m *messenger) wait(e *end) {
	for range 10_000_000 {
		m.a.dev.Progress() // one processor runs all goroutines
		m.b.dev.Progress()
		n, err := e.cq.Poll(m.got[:])
		switch {
		case err != nil || n > 0 && m.got[0].Status != rdma.Success:
			e.Fatalf("%v, %v", m.got[0].Status, err)
		case n > 0:
			return
		}
	}
	e.Fatal("no completion")
}
