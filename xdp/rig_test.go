package xdp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// rig is a region and a worker on it, checked for leaks at the end of the test.
type rig struct {
	testing.TB
	region *umem.Region
	book   *umem.Book
	worker *umem.Holder
}

// newRig opens a region of size bytes. Tests must close what they open on it in cleanups that they
// register later, as open does.
func newRig(t testing.TB, c umem.Config) *rig {
	t.Helper()
	testenv.Root(t)
	if c.Pages == umem.Auto {
		testenv.HugePages(t, c.Size)
	}
	fds := openFDs(t)
	region, err := umem.Open(c)
	testenv.Must(t, err)
	g := &rig{TB: t, region: region, book: region.NewBook("worker")}
	g.worker, err = g.book.NewHolder(umem.OwnerWorker, "worker")
	testenv.Must(t, err)
	t.Cleanup(func() {
		t.Helper()
		g.worker.Close()
		count, err := region.Audit()
		testenv.Check(t, err)
		if pool := count.Of(umem.OwnerPool); pool != region.Frames() {
			t.Errorf("the pool has %d of %d frames at the end: %v", pool, region.Frames(), count)
		}
		testenv.Check(t, g.book.Close())
		testenv.Check(t, region.Close())
		if now := openFDs(t); now > fds {
			t.Errorf("%d descriptors open at the end, %d at the start", now, fds)
		}
	})
	return g
}

// small returns a region for most tests: 16 MiB of 4096-byte frames.
func small() umem.Config { return umem.Config{Size: 16 << 20} }

// open opens an interface on the end of a pair, and closes it with the test.
func (g *rig) open(e *testenv.End, c Config) *Interface {
	g.Helper()
	i, err := g.tryOpen(e, c)
	testenv.Must(g, err)
	g.Cleanup(func() {
		g.Helper()
		testenv.Checkf(g, i.Close(), "close")
	})
	return i
}

func (g *rig) tryOpen(e *testenv.End, c Config) (i *Interface, err error) {
	g.Helper()
	c.Interface = e.Ifname
	if c.Holder == nil {
		c.Holder = g.worker
	}
	if c.RingSize == 0 {
		c.RingSize = 256
	}
	if c.Policy == Prefer {
		c.Policy = policy
	}
	e.Do(g, func() { i, err = Open(c) })
	if err == nil {
		e.Carry(g)
		for _, p := range i.ports {
			g.supply(p, int(p.reserve))
		}
	}
	return i, err
}

// policy is the policy of tests that name none. Tests on cards set it.
var policy = Prefer

// supply supplies n frames of the pool to the port and wakes its driver. A virtio card with zero
// copy and without frames makes its fellow wait, and with it the sender there.
func (g *rig) supply(p umem.Port, n int) {
	g.Helper()
	if n == 0 {
		return
	}
	fs := make([]umem.Frame, n)
	if got := g.worker.Take(fs); got < n {
		g.Fatalf("the pool had %d of %d frames", got, n)
	}
	if took := p.Supply(fs); took != n {
		g.Fatalf("Supply took %d of %d frames", took, n)
	}
	if err := p.Kick(); err != nil && !errors.Is(err, ErrInterfaceDown) {
		g.Fatal(err)
	}
}

func (g *rig) start(i *Interface) {
	g.Helper()
	testenv.Must(g, i.Start())
}

// receive receives until there are n packets, or fails after two seconds.
func (g *rig) receive(p *Port, n int) []umem.Frame {
	g.Helper()
	var out []umem.Frame
	batch := make([]umem.Frame, 64)
	packets := 0
	testenv.Wait(g, 2*time.Second, fmt.Sprintf("%d packets", n), func() bool {
		if err := p.Kick(); err != nil { // with zero copy a card needs a wake-up for new frames
			g.Fatal(err)
		}
		got := p.Recv(batch)
		out = append(out, batch[:got]...)
		for _, f := range batch[:got] {
			if !f.Continues() {
				packets++
			}
		}
		return packets >= n
	})
	if packets > n {
		g.Fatalf("%d packets came, want %d", packets, n)
	}
	return out
}

// receiveAny receives packets from all ports; the kernel chooses the port.
func (g *rig) receiveAny(i *Interface, n int) (out []umem.Frame) {
	g.Helper()
	batch := make([]umem.Frame, 64)
	testenv.Wait(g, 20*time.Second, "the packets", func() bool {
		for _, p := range i.Ports() {
			out = append(out, batch[:p.Recv(batch)]...)
			testenv.Must(g, p.Kick())
		}
		return len(out) >= n
	})
	return out
}

// quiet fails the test if a packet arrives within a moment.
func (g *rig) quiet(p *Port) {
	g.Helper()
	time.Sleep(20 * time.Millisecond)
	if n := p.Recv(make([]umem.Frame, 8)); n != 0 {
		g.Fatalf("%d frames came, want none", n)
	}
}

// stats reads a port's counters.
func (g *rig) stats(p *Port) Stats {
	g.Helper()
	s, err := p.Stats()
	testenv.Must(g, err)
	return s
}

// etherType is the type of the tests' packets, one for local experiments.
const etherType = 0x88b5

// packet returns an Ethernet packet of size bytes from one end to the other. It contains its number
// and bytes that follow from the number.
func packet(from, to *testenv.End, number uint32, size int) []byte {
	b := make([]byte, size)
	copy(b, to.MAC)
	copy(b[6:], from.MAC)
	binary.BigEndian.PutUint16(b[12:], etherType)
	binary.BigEndian.PutUint32(b[14:], number)
	for i := 18; i < size; i++ {
		b[i] = byte(number*31) + byte(i) + byte(i>>8)
	}
	return b
}

func packets(from, to *testenv.End, n, size int) [][]byte {
	out := make([][]byte, n)
	for i := range out {
		out[i] = packet(from, to, uint32(i), size)
	}
	return out
}
