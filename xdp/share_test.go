package xdp

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// guest is one of several Interfaces that share a device, each with its own book.
type guest struct {
	*rig
	book  *umem.Book
	hands *umem.Holder
	iface *Interface
	spare []umem.Frame
	got   []uint64 // numbers of the received packets, in the order of arrival
}

const guestRing = 128

// guest opens the interface for packets of a filter with that many frames. If beside is not nil, it
// shares that Interface's device.
func (g *rig) guest(e *testenv.End, beside *Interface, rank int, expression string, frames int) *guest {
	g.Helper()
	k := &guest{rig: g, book: g.region.NewBook(expression), spare: make([]umem.Frame, frames)}
	var err error
	k.hands, err = k.book.NewHolder(umem.OwnerWorker, expression)
	testenv.Must(g, err)
	if k.hands.Take(k.spare) != frames {
		g.Fatal("the pool has too few frames")
	}
	c := Config{
		Interface: e.Ifname, Direction: Receive, Holder: k.hands, RingSize: guestRing, Timestamps: true, Policy: policy, Rank: rank,
		Shape: umem.Shape{Headroom: 284}, Filter: mustFilter(g, expression),
	}
	e.Do(g, func() {
		if beside == nil {
			k.iface, err = Open(c)
		} else {
			k.iface, err = beside.Share(c)
		}
	})
	testenv.Must(g, err)
	e.Carry(g)
	if k.iface.granted.ZeroCopy { // the card holds frames too
		more := make([]umem.Frame, k.iface.ports[0].reserve+margin)
		k.spare = append(k.spare, more[:k.hands.Take(more)]...)
	}
	g.Cleanup(func() {
		k.close()
		testenv.Check(g, k.book.Close())
	})
	k.round()
	g.start(k.iface)
	return k
}

func (k *guest) close() {
	testenv.Check(k, k.iface.Close())
	k.hands.Close()
	k.spare = nil
}

// round runs one round of a worker.
func (k *guest) round() {
	batch := make([]umem.Frame, 64)
	for _, p := range k.iface.Ports() {
		n := p.Recv(batch)
		for _, f := range batch[:n] {
			if i, ok := testenv.Sequence(k.region.Bytes(f)); ok && testenv.Intact(k.region.Bytes(f)) {
				k.got = append(k.got, i)
			} else {
				k.Errorf("a packet that was not sent: % x", k.region.Bytes(f))
			}
		}
		k.spare = append(k.spare, batch[:n]...)
		n = p.Supply(k.spare)
		k.spare = k.spare[n:]
		testenv.Must(k, p.Kick())
	}
	k.book.Publish()
}

// until runs rounds of the guests until the first has received n packets.
func until(n int, guests ...*guest) {
	k := guests[0]
	k.Helper()
	testenv.Wait(k, 20*time.Second, fmt.Sprintf("%d packets", n), func() bool {
		for _, k := range guests {
			k.round()
			if c := k.region.Snapshot(); c.Sum() != k.region.Frames() {
				k.Fatalf("the owners have %d of %d frames", c.Sum(), k.region.Frames())
			}
		}
		return len(k.got) >= n
	})
}

// hasAll checks that a guest got every step-th packet from first up to, but without, behind.
func (k *guest) hasAll(first, behind, step uint64) {
	k.Helper()
	for n, i := 0, first; i < behind; n, i = n+1, i+step {
		if n >= len(k.got) || k.got[n] != i {
			k.Fatalf("%d packets came, and as number %d not packet %d: %v", len(k.got), n, i, k.got[max(0, min(n, len(k.got))-5):min(n+5, len(k.got))])
		}
	}
	if want := int((behind - first + step - 1) / step); len(k.got) != want {
		k.Fatalf("%d packets came, want %d", len(k.got), want)
	}
	k.got = nil
}

// turns returns packets to the ports from 5000 on, in turn.
func turns(pair *testenv.Pair, n int, ports uint64) (all [][]byte) {
	for i := range uint64(n) {
		all = append(all, testenv.UDP(&pair.A, &pair.B, 5000+uint16(i%ports), i, 100))
	}
	return all
}

// TestShare: on one queue, each of several Interfaces gets the packets that match its filter and no
// earlier filter. Interfaces come and go, even the first one. Those that stay miss no packet,
// although a packet may land in a frame that another one supplied.
func TestShare(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	send := func(n int, ports uint64) {
		t.Helper()
		testenv.SendRaw(t, &pair.A, turns(pair, n, ports), testenv.SendOptions{})
	}
	a := g.guest(&pair.B, nil, 1, "udp port 5000", 300)
	send(60, 2)
	until(30, a)
	a.hasAll(0, 60, 2)
	b := g.guest(&pair.B, a.iface, 2, "udp portrange 5000-5001", 300)
	for range 20 { // more packets than there are frames
		send(90, 3)
		until(30, a, b)
		until(30, b)
		a.hasAll(0, 90, 3)
		b.hasAll(1, 90, 3)
	}
	c := g.guest(&pair.B, b.iface, 0, "udp port 5001", 300)
	send(90, 3)
	until(30, a, b, c)
	until(30, c)
	a.hasAll(0, 90, 3)
	c.hasAll(1, 90, 3)
	b.hasAll(0, 0, 1)
	checkShares(t, a, b, c)

	testenv.Must(t, b.iface.Rank(-1))
	send(60, 2)
	until(60, b, a, c)
	b.hasAll(0, 60, 1)
	b.close()
	c.close()
	send(90, 3)
	until(30, a)
	a.hasAll(0, 90, 3)
	d := g.guest(&pair.B, a.iface, 5, "udp port 5002", 300)
	a.close() // the fill ring belongs to its socket
	for range 20 {
		send(90, 3)
		until(30, d)
		d.hasAll(2, 90, 3)
	}
	if l, err := d.iface.Ledger(); err != nil || l.Missing() != 0 || l.Lost() != 0 {
		t.Errorf("%v, %s", err, show(l))
	}
}

// checkShares checks the ledgers of TestShare's three Interfaces while all are open.
func checkShares(t *testing.T, a, b, c *guest) {
	t.Helper()
	for _, want := range []struct {
		k                                     *guest
		offered, received, others, left, lost uint64
	}{
		{a, 60 + 1800 + 90, 30 + 600 + 30, 600 + 30, 30 + 600 + 30, 0},
		{b, 1800 + 90, 600, 600 + 60, 600 + 30, 0},
		{c, 90, 30, 30, 30, 0},
	} {
		l := want.k.balanced(want.k.iface, want.offered)
		if l.Of(Received) != want.received || l.Of(OtherFlow) != want.others || l.Of(KernelNoMatch) != want.left || l.Lost() != want.lost {
			t.Errorf("%s", show(l))
		}
	}
}

// TestShareWithWhoIsSlow: an Interface that receives nothing loses only its own packets, when its
// ring is full.
func TestShareWithWhoIsSlow(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	slow := g.guest(&pair.B, nil, 0, "udp port 5000", 3*guestRing)
	quick := g.guest(&pair.B, slow.iface, 1, "udp port 5001", 3*guestRing)
	slow.round()
	const rounds = 20
	for range rounds {
		testenv.SendRaw(t, &pair.A, turns(pair, 60, 2), testenv.SendOptions{})
		until(30, quick)
		quick.hasAll(1, 60, 2)
	}
	l := slow.balanced(slow.iface, rounds*60)
	if l.Of(Waiting) != guestRing || l.Of(LostRingFull) != rounds*30-guestRing || l.Lost() != l.Of(LostRingFull) {
		t.Errorf("%s", show(l))
	}
	if l := quick.balanced(quick.iface, rounds*60); l.Lost() != 0 {
		t.Errorf("%s", show(l))
	}
	// It keeps what it receives, as many frames as it has supplied. The other one still has enough.
	batch := make([]umem.Frame, 64)
	var held []umem.Frame
	for range 100 {
		n := slow.iface.ports[0].Recv(batch)
		held = append(held, batch[:n]...)
		testenv.SendRaw(t, &pair.A, turns(pair, 20, 2), testenv.SendOptions{})
		until(10, quick)
		quick.hasAll(1, 20, 2)
	}
	if len(held) != guestRing {
		t.Errorf("the slow one has taken %d frames, want the %d that it supplied beyond its reserve", len(held), guestRing)
	}
	slow.spare = append(slow.spare, held...)
}

// TestShareRefused: Share refuses what is impossible, with the reason. The existing Interfaces continue.
func TestShareRefused(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	a := g.guest(&pair.B, nil, 0, "udp port 5000", 300)
	for words, change := range map[string]func(*Config){
		"both in the slot layout, or neither": func(c *Config) { c.Shape.Headroom = 0 },
		"the same queues":                     func(c *Config) { c.Queues = []uint32{0} },
		"one policy of zero copy":             func(c *Config) { c.Policy = Require },
		"the same times of arrival":           func(c *Config) { c.Timestamps = false },
		"one promiscuous mode":                func(c *Config) { c.Promiscuous = true },
		"the same busy polling":               func(c *Config) { c.BusyPoll.Time = time.Millisecond },
		"receiving alone":                     func(c *Config) { c.Direction = Both },
		"a program of ours":                   func(c *Config) { c.NoProgram = true },
		"decides on every packet":             func(c *Config) { c.Filter, c.Own = nil, new(bpf.Object) },
		"a name":                              func(c *Config) { c.Interface = pair.A.Ifname },
	} {
		c := a.iface.asked
		c.Holder = g.worker
		change(&c)
		pair.B.Do(t, func() {
			if _, err := a.iface.Share(c); !errors.Is(err, ErrShared) || !strings.Contains(err.Error(), words) {
				t.Errorf("%s: %v", words, err)
			}
		})
	}
	c := a.iface.asked
	c.Holder = g.worker
	c.BindTimeout = 10 * time.Millisecond
	pair.B.Do(t, func() {
		if _, err := Open(c); err == nil {
			t.Error("opened twice")
		}
	})
	testenv.SendRaw(t, &pair.A, turns(pair, 20, 1), testenv.SendOptions{})
	until(20, a)
	a.hasAll(0, 20, 1)
	a.close()
	pair.B.Do(t, func() {
		if _, err := a.iface.Share(c); !errors.Is(err, ErrClosed) {
			t.Errorf("shared with one that is closed: %v", err)
		}
	})
}

// TestShareFull: a device allows as many Interfaces as the program has seats. A seat is free again
// after Close.
func TestShareFull(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, umem.Config{Size: 64 << 20})
	all := []*guest{g.guest(&pair.B, nil, 0, "udp port 5000", 300)}
	for n := uint16(1); n < bpf.Seats; n++ {
		all = append(all, g.guest(&pair.B, all[n-1].iface, int(n), fmt.Sprintf("udp port %d", 5000+n), 300))
	}
	c := all[0].iface.asked
	c.Holder = g.worker
	pair.B.Do(t, func() {
		if _, err := all[0].iface.Share(c); !errors.Is(err, ErrShared) {
			t.Errorf("one too many: %v", err)
		}
	})
	all[3].close()
	all[3] = g.guest(&pair.B, all[0].iface, 3, "udp port 5003", 300)
	testenv.SendRaw(t, &pair.A, turns(pair, 6*bpf.Seats, bpf.Seats), testenv.SendOptions{})
	for n, k := range all {
		until(6, append([]*guest{k}, all...)...)
		k.hasAll(uint64(n), 6*bpf.Seats, bpf.Seats)
	}
}

// TestShareNoAllocations: receiving and supplying beside other Interfaces does not allocate.
func TestShareNoAllocations(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	from := g.open(&pair.A, Config{Direction: Send}).Ports()[0]
	a := g.guest(&pair.B, nil, 0, "udp", 300)
	b := g.guest(&pair.B, a.iface, 1, "not udp", 300)
	to := b.iface.ports[0]
	road := newRoad(g, from, to, &pair.A, &pair.B, 64, 300)
	none := make([]umem.Frame, 0)
	round := func() {
		road.round(t)
		a.iface.ports[0].Recv(road.got)
		a.iface.ports[0].Supply(none)
	}
	round()
	if n := testenv.AllocsPerRun(t, 200, round); n != 0 {
		t.Errorf("%v allocations in a round of 64 packets", n)
	}
}
