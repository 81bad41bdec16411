package xdp

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// TestTeardown: an interface can be opened, used and closed twenty times in a row. The kernel
// answers EBUSY for a while after each close.
func TestTeardown(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true, Queues: 2})
	g := newRig(t, small())
	for n := range testenv.Fewer(20) {
		i := g.open(&pair.B, Config{})
		for _, p := range i.Ports() {
			g.supply(p, 100)
		}
		g.start(i)
		testenv.SendRaw(t, &pair.A, packets(&pair.A, &pair.B, 10, 500), testenv.SendOptions{})
		g.worker.Give(g.receiveAny(i, 10))
		p := i.Ports()[n%len(i.Ports())]
		p.Send(g.load(packets(&pair.B, &pair.A, 10, 500)))
		if n%3 == 0 {
			testenv.Must(t, p.Kick())
		}
		testenv.Mustf(t, i.Close(), "round %d", n)
		if held := g.worker.Held(); held != 0 {
			t.Fatalf("round %d: the worker has %d frames", n, held)
		}
		if count, err := g.region.Audit(); err != nil || count.Of(umem.OwnerPool) != g.region.Frames() {
			t.Fatalf("round %d: %v, %v", n, count, err)
		}
	}
}

// TestCloseTwice: a second Close does nothing, and the verbs of closed ports return 0.
func TestCloseTwice(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	i := g.open(&pair.B, Config{})
	p := i.Ports()[0]
	g.supply(p, 100)
	if err := g.region.Close(); err == nil || !strings.Contains(err.Error(), pair.B.Ifname) {
		t.Errorf("the region closes under the interface: %v", err)
	}
	for range 2 {
		testenv.Check(t, p.Close())
		fs := make([]umem.Frame, 4)
		if p.Supply(fs)+p.Recv(fs)+p.Send(fs)+p.Reap(fs) != 0 || p.Kick() != nil || p.FD() != -1 {
			t.Error("a closed port works")
		}
		testenv.Check(t, i.Start())
		testenv.Check(t, i.Close())
	}
	if got := g.region.Registered(); len(got) != 0 {
		t.Errorf("still registered with %v", got)
	}
	if _, err := i.Ledger(); err != nil {
		t.Error(err)
	}
}

// TestCloseFlushes: Close sends the packets that Send took before.
func TestCloseFlushes(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	i := g.open(&pair.A, Config{Direction: Send})
	peer := listen(t, &pair.B)
	sent := packets(&pair.A, &pair.B, 100, 500)
	i.Ports()[0].Send(g.load(sent))
	testenv.Must(t, i.Close())
	peer.expect(t, sent)
}

// TestCloseWhileDown: Close returns the frames of packets that the kernel never took. With zero copy
// the card fills frames itself, so Close first waits until the queue is free.
func TestCloseWhileDown(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	i := g.open(&pair.B, Config{})
	p := i.Ports()[0]
	g.supply(p, 100)
	pair.B.SetDown(t)
	p.Send(g.load(packets(&pair.B, &pair.A, 50, 500)))
	testenv.Must(t, i.Close())
	if p.settles != i.Granted().ZeroCopy || g.worker.Held() != 0 {
		t.Errorf("waited for the queue: %v; the worker has %d frames", p.settles, g.worker.Held())
	}
}

// TestConcurrentControl: all methods that any goroutine may call can run at once, while packets
// flow and the interface closes.
func TestConcurrentControl(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true, Queues: 2})
	g := newRig(t, small())
	i := g.open(&pair.B, Config{})
	defer g.flood(&pair.A, &pair.B, 200)()
	for _, p := range i.Ports() {
		g.supply(p, 200)
	}
	g.start(i)
	var calls sync.WaitGroup
	for range 3 {
		calls.Go(func() {
			for range 50 {
				_, err := i.Ledger()
				testenv.Check(t, err)
				if err := i.Check(); err != nil && !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
				_, err = i.Ports()[0].Stats()
				testenv.Check(t, errors.Join(err, i.Start()))
			}
		})
	}
	batch := make([]umem.Frame, 64)
	for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); {
		for _, p := range i.Ports() {
			p.Supply(batch[:p.Recv(batch)])
			testenv.Check(t, p.Kick())
		}
	}
	testenv.Check(t, i.Close())
	calls.Wait()
}

// TestNothingWritesAfterClose: nothing writes to the frames that Close returned under traffic.
func TestNothingWritesAfterClose(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	sender := testenv.NewSender(t, &pair.A)
	one := packet(&pair.A, &pair.B, 0, 1500)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = sender.Send(one)
			}
		}
	}()
	defer func() { close(stop); <-done }()
	for range testenv.Fewer(10) {
		i := g.open(&pair.B, Config{NoProgram: false})
		p := i.Ports()[0]
		g.supply(p, 256)
		g.start(i)
		testenv.Wait(t, 2*time.Second, "traffic", func() bool { return g.stats(p).Waiting > 5 })
		testenv.Must(t, p.Close())
		clear(g.region.Data())
		time.Sleep(5 * time.Millisecond)
		for at, b := range g.region.Data() {
			if b != 0 {
				t.Fatalf("byte %#x was written after Close", at)
			}
		}
		testenv.Must(t, i.Close())
	}
}

// TestProbe: the probe gets EBUSY while a queue is bound, and succeeds when it is free.
func TestProbe(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	i := g.open(&pair.B, Config{NoProgram: true})
	p := i.Ports()[0]
	if err := p.probe.wait(i.Index(), 0, 50*time.Millisecond); err == nil {
		t.Error("the queue is said to be free")
	}
	p.settles = true
	old := i.config.BindTimeout
	i.config.BindTimeout = 20 * time.Millisecond
	other := p.probe
	// A Close that cannot be sure keeps the frames, and its error says so. The next one returns them.
	p.settles, p.closed = true, true
	if err := p.Close(); err == nil || p.settled {
		t.Errorf("the frames were let go while the queue is bound: %v", err)
	}
	p.settles, p.closed = false, false
	i.config.BindTimeout = old
	testenv.Check(t, p.Close())
	if other.fd != -1 {
		t.Error("the probe is still open")
	}
}
