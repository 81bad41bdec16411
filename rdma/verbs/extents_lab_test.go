//go:build verbs && cgo

package verbs

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/umem"
)

// TestPortsOfExtents: a message port delivers a message as long as an extent into an extent.
func TestPortsOfExtents(t *testing.T) {
	labenv.Guest(t)
	p := newPortBench(t)
	p.region = testenv.Opened(t, func() (*umem.Region, error) { return umem.Open(umem.Config{Size: 8 << 20, Extents: 4}) })
	p.memory = p.register(rdma.LocalWrite | rdma.Remote | rdma.BindWindows)
	t.Run("message", func(t *testing.T) {
		p := p.on(t)
		s := portShape{transport: rdma.RC}
		ca, cb := p.config("a", s), p.config("b", s)
		ca.QueuePairs[0].Message = 1<<20 - landing
		p.join(&ca, &cb, s)
		p.extents(p.openPort(ca), p.openPort(cb))
	})
}

// extents sends two full extents from a to b.
func (p *portBench) extents(a, b umem.Port) {
	p.t.Helper()
	fs := make([]umem.Frame, 4)
	if n := p.worker.TakeExtents(fs); n != 4 || b.Supply(fs[:2]) != 2 {
		p.t.Fatalf("%d extents, or they were not taken", n)
	}
	full := fs[2:]
	for i := range full {
		full[i].Addr, full[i].Len = full[i].Addr+landing, 1<<20-landing
		p.fill(full[i].Addr, full[i].Len)
	}
	p.mustSend(a, full)
	for i, f := range p.received(a, b, 2) {
		if !bytes.Equal(p.region.Bytes(f), p.region.Bytes(full[i])) {
			p.t.Errorf("extent %d is not what was sent", i)
		}
		p.worker.Give([]umem.Frame{f})
	}
	p.wantBack(a, "sent", 2, nil)
}

// received receives messages that a sent to b.
func (p *portBench) received(a, b umem.Port, n int) (got []umem.Frame) {
	p.t.Helper()
	fs := make([]umem.Frame, n)
	testenv.Wait(p.t, 20*time.Second, "messages", func() bool {
		testenv.Must(p.t, errors.Join(a.Kick(), b.Kick()))
		got = append(got, fs[:b.Recv(fs[:n-len(got)])]...)
		return len(got) == n
	})
	return got
}
