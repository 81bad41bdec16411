package transport

import (
	"fmt"
	"testing"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/umem"
)

// direct is two engines in one region, without a wire between them: each engine receives the
// other's packets at once, from the memory that they were sent from.
type direct struct {
	region  *umem.Region
	engines [2]*Engine
	pairs   [2]*QueuePair
	cqs     [2]*CompletionQueue
	gids    [2]rdma.GID
	key     uint32
	now     Time
	out     [64]Packet
	in      [64]Arrival
	views   [64][1]umem.Frame
	done    [64]rdma.WorkCompletion
}

func newDirect(t tb, c QueuePairConfig, o options) *direct {
	r, err := umem.Open(umem.Config{Size: 4 << 20, Pages: umem.Ordinary})
	must(t, err)
	t.Cleanup(func() { must(t, r.Close()) })
	d := &direct{region: r, now: 1}
	keys, err := NewKeys(r.Size(), 16)
	must(t, err)
	d.key, err = keys.Register(testDomain, 0, r.Size(), rdma.LocalWrite|rdma.Remote)
	must(t, err)
	for i := range d.engines {
		d.gids[i][15] = byte(i + 1)
		d.engines[i], err = New(Config{Region: r, Keys: keys, QueuePairs: 4, MTU: rdma.MTU4096})
		must(t, err)
		d.cqs[i], err = NewCompletionQueue(1024)
		must(t, err)
		c.Domain, c.SendCQ, c.ReceiveCQ, c.Transport, c.SignalAll = testDomain, d.cqs[i], d.cqs[i], rdma.RC, true
		c.SendDepth, c.RecvDepth = 128, 128
		d.pairs[i], err = d.engines[i].NewQueuePair(c)
		must(t, err)
	}
	w := &world{t: t}
	o.mtu = rdma.MTU4096
	for i, q := range d.pairs {
		w.connect(q, d.gids[1-i], d.pairs[1-i].Number(), o)
	}
	return d
}

// pass moves packets from one engine to the other.
func (d *direct) pass(from int) bool {
	d.now += 1000
	n := d.engines[from].Progress(d.now, d.out[:])
	for i := range d.out[:n] {
		p, a := &d.out[i], &d.in[i]
		a.Header, a.From, a.Payload = p.Header, d.gids[from], nil
		if p.Count > 0 {
			d.views[i][0] = umem.Frame{Addr: p.Pieces[0].Addr, Len: p.Pieces[0].Length}
			a.Payload = d.views[i][:]
		}
	}
	d.engines[from].Transmitted(n)
	d.engines[1-from].Receive(d.now, d.in[:n])
	return n > 0
}

func (d *direct) poll(t tb, side int) (n int) {
	for {
		k, err := d.cqs[side].Poll(d.done[:])
		must(t, err)
		for i := range d.done[:k] {
			if d.done[i].Status != rdma.Success {
				t.Fatal(d.done[i].Err())
			}
		}
		if n += k; k == 0 {
			return n
		}
	}
}

// round posts a batch of messages and polls until all are complete.
func (d *direct) round(t tb, requests []rdma.SendRequest, receives []rdma.ReceiveRequest, sges, into []rdma.SGE) {
	if len(receives) > 0 {
		if _, err := d.pairs[1].PostReceive(receives, into); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.pairs[0].PostSend(requests, sges); err != nil {
		t.Fatal(err)
	}
	for done := 0; done < len(requests); {
		d.pass(0)
		d.poll(t, 1)
		d.pass(1)
		done += d.poll(t, 0)
		d.engines[0].Tick(d.now)
	}
}

// batchOf returns n requests of one kind, and n receives if the operation needs them.
func (d *direct) batchOf(o rdma.Op, n, length int) (requests []rdma.SendRequest, receives []rdma.ReceiveRequest, sges, into []rdma.SGE) {
	for i := range n {
		requests = append(requests, rdma.SendRequest{ID: uint64(i), Op: o, SGEs: 1, RemoteAddr: 1 << 20, RKey: d.key, Compare: 1})
		sges = append(sges, rdma.SGE{Addr: uint64(i * 4096), Length: uint32(length), LKey: d.key})
		if o == rdma.Send && d.pairs[1].loans == nil {
			receives = append(receives, rdma.ReceiveRequest{ID: uint64(i), SGEs: 1})
			into = append(into, rdma.SGE{Addr: 2<<20 + uint64(i*4096), Length: 4096, LKey: d.key})
		}
	}
	return requests, receives, sges, into
}

var benchmarked = []rdma.Op{rdma.Send, rdma.Write, rdma.Read, rdma.FetchAdd}

// BenchmarkMessages counts messages through both engines in one thread, 32 posted at once.
func BenchmarkMessages(b *testing.B) {
	for _, o := range benchmarked {
		for _, length := range []int{64, 4096} {
			if o == rdma.FetchAdd && length != 64 {
				continue
			}
			b.Run(fmt.Sprintf("%v/%d", o, length), func(b *testing.B) {
				d := newDirect(b, QueuePairConfig{}, options{})
				requests, receives, sges, into := d.batchOf(o, 32, length)
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N {
					d.round(b, requests, receives, sges, into)
				}
				b.ReportMetric(float64(b.N)*32/b.Elapsed().Seconds(), "messages/s")
			})
		}
	}
}

// BenchmarkOne sends one message at a time.
func BenchmarkOne(b *testing.B) {
	d := newDirect(b, QueuePairConfig{}, options{})
	requests, receives, sges, into := d.batchOf(rdma.Send, 1, 64)
	for range b.N {
		d.round(b, requests, receives, sges, into)
	}
}

// TestAllocations: once each operation has run, repeating it allocates nothing.
func TestAllocations(t *testing.T) {
	for _, o := range benchmarked {
		t.Run(o.String(), func(t *testing.T) {
			d := newDirect(t, QueuePairConfig{}, options{})
			requests, receives, sges, into := d.batchOf(o, 32, 64)
			if n := testing.AllocsPerRun(100, func() { d.round(t, requests, receives, sges, into) }); n != 0 {
				t.Errorf("%v allocations in 32 messages", n)
			}
		})
	}
}

// TestLoanAllocations: receiving in loaned frames allocates nothing, even when packets are lost.
func TestLoanAllocations(t *testing.T) {
	c := QueuePairConfig{QueuePairConfig: rdma.QueuePairConfig{Loans: 64}}
	d := newDirect(t, c, options{})
	requests, _, sges, _ := d.batchOf(rdma.Send, 32, 4096)
	var fs [64]umem.Frame
	round := 0
	n := testing.AllocsPerRun(100, func() {
		if round++; round%2 == 0 { // the link loses those packets
			if _, err := d.pairs[0].PostSend(requests[:1], sges); err != nil {
				t.Fatal(err)
			}
			d.engines[0].Progress(d.now, d.out[:])
			d.poll(t, 0)
		}
		d.round(t, requests, nil, sges, nil)
		for d.pass(0) || d.pass(1) {
		}
		d.poll(t, 0)
		k := d.pairs[1].Loaned(fs[:])
		d.pairs[1].Return(fs[:k])
		d.pass(1)
		for d.engines[1].Freed(fs[:]) > 0 {
		}
	})
	if n != 0 {
		t.Errorf("%v allocations in 32 messages", n)
	}
	if d.engines[0].Count(SequenceNAKs) == 0 {
		t.Error("nothing was lost")
	}
}
