package roce

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/network"
	"github.com/unifiedd/unifiedd/umem"
)

// TestSleeper: each message wakes a program that sleeps until its completion queue is readable,
// while the other end polls.
func TestSleeper(t *testing.T) {
	g := newRig(t, rigOptions{})
	a, b := g.connected(config(rdma.RC), rdma.MTU1024)
	var got [8]rdma.WorkCompletion
	for i := range uint64(50) {
		b.receive(i, b.sge(0, 64))
		g.must(b.cq.Arm(false))
		if n, err := b.cq.Poll(got[:]); n != 0 || err != nil {
			t.Fatalf("%d completions before a message, %v", n, err)
		}
		if i%7 == 0 {
			time.Sleep(5 * time.Millisecond) // longer than the loop leaves the device to programs
		}
		a.send(rdma.SendRequest{ID: i, Op: rdma.Send}, a.sge(0, 64))
		readable(t, b.cq.FD())
		if n, err := b.cq.Acknowledge(); n != 1 || err != nil {
			t.Fatalf("%d events, %v", n, err)
		}
		b.want(i, rdma.Received, rdma.Success)
		a.want(i, rdma.SendDone, rdma.Success)
	}
	if n, err := b.cq.Acknowledge(); n != 0 || err != nil {
		t.Errorf("%d events are left, %v", n, err)
	}
}

// TestArmedBeforePost: the progress loop drives the device for a program that armed its queue, even if the program posts after that. The
// program is not woken one sleep interval late.
func TestArmedBeforePost(t *testing.T) {
	g := newRig(t, rigOptions{})
	c := config(rdma.RC)
	c.SignalAll = false
	a, b := g.connected(c, rdma.MTU1024)
	queue, of := b.cq.(*completionQueue).cq, &b.dev.progressLoop
	b.receive(0, b.sge(0, 64))
	g.must(b.cq.Arm(false))
	testenv.Wait(t, 10*time.Second, "the device to be watched", func() bool { return !of.napping.Load() })
	for i := range uint64(20) {
		a.receive(i, a.sge(0, 64))
		b.send(rdma.SendRequest{ID: i, Op: rdma.Send}, b.sge(64, 64)) // not signaled: the queue stays armed
		for end := time.Now().Add(sleepInterval / 4); time.Now().Before(end); {
			if of.napping.Load() && queue.Armed() {
				t.Fatalf("message %d: the device is left alone, and a program sleeps", i)
			}
		}
		a.want(i, rdma.Received, rdma.Success)
	}
	a.send(rdma.SendRequest{ID: 20, Op: rdma.Send}, a.sge(64, 64))
	readable(t, b.cq.FD())
	b.want(0, rdma.Received, rdma.Success)
}

func readable(t *testing.T, fd int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 1000)
		if n == 1 {
			return
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
	}
	t.Fatal("no event came in 10 s")
}

// TestPassive: a peer can read and write the memory of a program that does nothing, and gets an ACK
// for a message after which the program does not poll.
func TestPassive(t *testing.T) {
	g := newRig(t, rigOptions{})
	a, b := g.connected(config(rdma.RC), rdma.MTU1024)
	for i := range uint64(20) {
		b.fill(0, 8192, byte(i))
		a.send(rdma.SendRequest{ID: i, Op: rdma.Read, RemoteAddr: b.base, RKey: b.memory.RKey()}, a.sge(0, 8192))
		a.want(i, rdma.ReadDone, rdma.Success)
		a.send(rdma.SendRequest{ID: i, Op: rdma.Write, RemoteAddr: b.base + 8192, RKey: b.memory.RKey()}, a.sge(0, 8192))
		a.want(i, rdma.WriteDone, rdma.Success)
	}
	b.receive(1, b.sge(0, 64))
	a.send(rdma.SendRequest{ID: 2, Op: rdma.Send}, a.sge(0, 64))
	b.want(1, rdma.Received, rdma.Success) // the program does not poll after this
	a.want(2, rdma.SendDone, rdma.Success)
}

// TestPeerVanishes: if the peer's queue pair is closed, the first outstanding request fails and the
// others are flushed.
func TestPeerVanishes(t *testing.T) {
	g := newRig(t, rigOptions{})
	g.timeout = 12
	a, b := g.connected(config(rdma.RC), rdma.MTU1024)
	b.receive(1, b.sge(0, 64))
	a.receive(9, a.sge(0, 64))
	a.send(rdma.SendRequest{ID: 1, Op: rdma.Send}, a.sge(0, 64))
	b.want(1, rdma.Received, rdma.Success)
	a.want(1, rdma.SendDone, rdma.Success)
	g.must(b.qp.Close())
	a.send(rdma.SendRequest{ID: 2, Op: rdma.Send}, a.sge(0, 64))
	a.send(rdma.SendRequest{ID: 3, Op: rdma.Send}, a.sge(0, 64))
	for id, status := range map[uint64]rdma.Status{2: rdma.RetryExceeded} {
		a.want(id, 0, status)
	}
	a.want(3, 0, rdma.WorkFlushed)
	a.want(9, 0, rdma.WorkFlushed)
	if s, err := a.qp.State(); s != rdma.Error || err != nil {
		t.Errorf("%v, %v", s, err)
	}
	a.receive(10, a.sge(0, 64))
	a.want(10, 0, rdma.WorkFlushed)
}

// TestLinkEvents: the device reports when its link goes down and up.
func TestLinkEvents(t *testing.T) {
	g := newRig(t, rigOptions{})
	a := g.sides[0]
	g.pair.B.SetDown(t)
	a.event(rdma.PortError)
	if p, err := a.dev.Port(1); p.Active || p.State != "DOWN" || err != nil {
		t.Errorf("port %+v, %v", p, err)
	}
	g.pair.B.SetUp(t)
	a.event(rdma.PortActive)
	if _, err := a.dev.Port(2); err == nil {
		t.Error("there is a port 2")
	}
}

// event waits for an event and skips others.
func (s *side) event(want rdma.EventKind) {
	s.Helper()
	testenv.Wait(s, 10*time.Second, want.String(), func() bool {
		e, ok, err := s.dev.NextEvent()
		s.must(err)
		return ok && e.Kind == want
	})
}

// TestInterfaceGone: if the interface is deleted, queue pairs enter ERR, and everything can be
// closed.
func TestInterfaceGone(t *testing.T) {
	g := newRig(t, rigOptions{})
	a, b := g.connected(config(rdma.RC), rdma.MTU1024)
	b.receive(4, b.sge(0, 64))
	g.pair.A.Delete(t)
	b.event(rdma.DeviceFatal)
	b.want(4, 0, rdma.WorkFlushed)
	a.event(rdma.DeviceFatal)
	b.send(rdma.SendRequest{ID: 5, Op: rdma.Send}, b.sge(0, 64))
	b.want(5, 0, rdma.WorkFlushed)
}

// TestNewMAC: a connected queue pair uses the new MAC address of its peer.
func TestNewMAC(t *testing.T) {
	g := newRig(t, rigOptions{})
	a, b := g.connected(config(rdma.RC), rdma.MTU1024)
	exchange := func() {
		b.receive(1, b.sge(0, 64))
		a.send(rdma.SendRequest{ID: 1, Op: rdma.Send}, a.sge(0, 64))
		b.want(1, rdma.Received, rdma.Success)
		a.want(1, rdma.SendDone, rdma.Success)
	}
	exchange()
	g.pair.B.Run(t, "ip", "link", "set", "dev", b.ns.Ifname, "address", "02:77:00:00:00:99")
	g.pair.A.Run(t, "ip", "neigh", "replace", b.ns.IP.String(), "lladdr", "02:77:00:00:00:99", "dev", a.ns.Ifname)
	testenv.Wait(t, 10*time.Second, "the new address to be used", func() bool {
		a.dev.lock.Lock()
		defer a.dev.lock.Unlock()
		var frame [64]byte
		a.dev.datapath.paths[0].template.Put(frame[:], 1, 30)
		return frame[5] == 0x99
	})
	exchange()
}

// TestRefused: the device refuses objects that it cannot make, with an error that says why.
func TestRefused(t *testing.T) {
	g := newRig(t, rigOptions{})
	s := g.sides[0]
	p, err := NewProvider(Config{Region: s.region})
	g.must(err)
	for name, c := range map[string]struct {
		do   func() error
		says string
	}{
		"no region":       {func() error { _, err := NewProvider(Config{}); return err }, "region"},
		"an odd size":     {func() error { _, err := NewProvider(Config{Region: s.region, Receive: 100}); return err }, "power of two"},
		"no interface":    {func() error { _, err := p.Open("none0"); return err }, "none0"},
		"another region":  {func() error { _, err := s.pd.Register(&umem.Region{}, 0); return err }, "one region"},
		"too many rights": {func() error { _, err := s.pd.Register(s.region, 1<<20); return err }, "rights"},
		"outside":         {func() error { _, err := s.pd.RegisterPart(s.region, s.region.Size(), 1, 0); return err }, "register"},
		"a vector": {func() error {
			_, err := s.dev.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: 1, Vector: 1})
			return err
		}, "vector"},
		"no depth":         {func() error { _, err := s.dev.NewCompletionQueue(rdma.CompletionQueueConfig{}); return err }, "completion queue"},
		"no queues":        {func() error { _, err := s.pd.NewQueuePair(config(rdma.RC)); return err }, "completion queues"},
		"no address":       {func() error { _, err := s.pd.NewAddressHandle(rdma.Address{Port: 1}); return err }, "GID"},
		"no such GID":      {func() error { _, err := s.pd.NewAddressHandle(rdma.Address{GID: s.gid.GID, GIDIndex: 77}); return err }, "place 77"},
		"its domain":       {func() error { return s.dev.Close() }, "must be closed before"},
		"its memory":       {func() error { return s.pd.Close() }, "memory of"},
		"too many loans":   {func() error { return s.loans(1 << 20) }, "Loans"},
		"more than frames": {func() error { return s.loans(1 << 16) }, "free frames"},
	} {
		if err := c.do(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; it should say %q", name, err, c.says)
		}
	}
	if _, err := p.Open("none0"); !errors.Is(err, network.ErrInterfaceGone) {
		t.Errorf("an interface that is not there: %v", err)
	}
	e := s.newEnd(config(rdma.RC))
	if err := e.cq.Resize(9); !errors.Is(err, rdma.ErrUnsupported) {
		t.Errorf("resize: %v", err)
	}
	if err := e.lead(attributes(s, 1, rdma.MTU4096, s)); err == nil || !strings.Contains(err.Error(), "raise the MTU") {
		t.Errorf("an MTU that does not fit: %v", err)
	}
	s.counted()
}

// loans tries to make a queue pair with n loans.
func (s *side) loans(n int) error {
	cq := testenv.Opened(s.rig, func() (rdma.CompletionQueue, error) {
		return s.dev.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: 8})
	})
	c := lender(n)
	c.SendCQ, c.ReceiveCQ = cq, cq
	q, err := s.pd.NewQueuePair(c)
	if err == nil {
		return q.Close()
	}
	return err
}
