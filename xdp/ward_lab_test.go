package xdp

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// setup is a card in one of the modes that it grants.
type setup struct {
	name   string
	long   bool // not part of make test
	policy Policy
	take   func(testing.TB) *testenv.Pair // B is the card under test
}

var setups = []setup{
	{"igb zero copy", false, Prefer, labenv.Igb},
	{"igb copy", true, Copy, labenv.Igb},
	{"virtio", true, Prefer, func(t testing.TB) *testenv.Pair {
		p := labenv.VirtioNet(t)
		return &testenv.Pair{A: p.B, B: p.A} // virtio0 is the one with zero copy
	}},
}

// onSetups runs a test on each card.
func onSetups(t *testing.T, test func(*testing.T, *ward)) {
	for _, s := range setups {
		if s.long && testing.Short() {
			continue
		}
		t.Run(s.name, func(t *testing.T) { test(t, newWard(t, s)) })
	}
}

// ward is a card under traffic that a test disturbs. It checks packets from the other card as they
// arrive, and sends others all the time.
type ward struct {
	*rig
	setup
	pair *testenv.Pair
	i    *Interface
	free [][]umem.Frame // of each port, not in a ring; a port that only sends would end up with all

	received, sent uint64
	next           time.Time // when to send again
	kick           error     // Kick's error in the last round
}

func newWard(t *testing.T, s setup) *ward {
	t.Helper()
	pair := s.take(t)
	w := &ward{rig: newRig(t, umem.Config{Size: 16 << 20}), setup: s, pair: pair}
	w.Cleanup(w.letGo)
	w.traffic()
	return w
}

// traffic sends from the other card until the end of the test, even while nothing receives it. The
// guest can carry the rate easily.
func (w *ward) traffic() {
	sender := testenv.NewSender(w, &w.pair.A)
	all := packets(&w.pair.A, &w.pair.B, 64, 1400)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				_, _ = sender.Send(all[n%len(all)]) // the link may be down
			}
		}
	}()
	w.Cleanup(func() { close(stop); <-done })
}

// admit opens the card and waits until it receives and sends.
func (w *ward) admit() {
	w.Helper()
	begin := time.Now()
	i, err := w.tryOpen(&w.pair.B, Config{Policy: w.policy, RingSize: 512, Promiscuous: true, Timestamps: true, BindTimeout: 20 * time.Second})
	testenv.Must(w, err)
	w.i, w.free = i, nil
	if want := w.policy == Prefer && grants(w.TB.(*testing.T), w.pair.B.Ifname); i.Granted().ZeroCopy != want {
		w.Errorf("granted %+v", i.Granted())
	}
	for _, p := range i.Ports() {
		w.supply(p, 200)
		fs := make([]umem.Frame, 16)
		w.worker.Take(fs)
		w.free = append(w.free, fs)
	}
	w.start(i)
	w.well("opening")
	w.Logf("opened and under traffic after %v", time.Since(begin))
}

// round serves every queue once.
func (w *ward) round() (packets int) {
	w.kick = nil
	due := time.Now().After(w.next)
	if due {
		w.next = time.Now().Add(4 * time.Millisecond)
	}
	for at, p := range w.i.Ports() {
		packets += w.serve(p, &w.free[at])
		if due {
			n := min(len(w.free[at]), 2)
			w.filled(w.free[at][:n])
			w.free[at] = w.free[at][p.Send(w.free[at][:n]):]
		}
		if err := p.Kick(); err != nil {
			w.kick = err
		}
	}
	return packets
}

// serve receives and checks a port's packets. It supplies all free frames except some for sending.
func (w *ward) serve(p *Port, free *[]umem.Frame) (packets int) {
	batch := make([]umem.Frame, 64)
	got := batch[:p.Recv(batch)]
	for _, f := range got {
		w.check(w.region.Bytes(f))
	}
	w.received += uint64(len(got))
	*free = append(*free, got...)
	n := p.Reap(batch)
	w.sent += uint64(n)
	*free = append(*free, batch[:n]...)
	*free = (*free)[p.Supply((*free)[:max(0, len(*free)-16)]):]
	return len(got)
}

// filled writes a packet to the other card into each frame.
func (w *ward) filled(fs []umem.Frame) {
	for at := range fs {
		start, _ := w.region.Start(fs[at])
		fs[at] = umem.Frame{Addr: start + 512, Len: 300}
		copy(w.region.Bytes(fs[at]), packet(&w.pair.B, &w.pair.A, uint32(at), 300))
	}
}

// check compares a packet with what was sent.
func (w *ward) check(b []byte) {
	if len(b) < 18 || !bytes.Equal(b, packet(&w.pair.A, &w.pair.B, binary.BigEndian.Uint32(b[14:]), 1400)) {
		w.Errorf("a packet of %d bytes is none that was sent: %x", len(b), b[:min(len(b), 32)])
	}
}

// pass lets traffic flow, as far as it can.
func (w *ward) pass(span time.Duration) {
	for end := time.Now().Add(span); time.Now().Before(end); {
		w.round()
		time.Sleep(time.Millisecond)
	}
}

// well waits until packets arrive and leave again, and no error is reported.
func (w *ward) well(after string) {
	w.Helper()
	begin := time.Now()
	for w.round() > 0 && time.Since(begin) < time.Second { // packets that waited in the rings prove nothing
	}
	received, sent := w.received, w.sent
	for w.received < received+100 || w.sent < sent+20 || w.i.Check() != nil || w.kick != nil {
		if w.pass(time.Millisecond); time.Since(begin) > 30*time.Second {
			l, _ := w.i.Ledger()
			w.Fatalf("after %s %d packets came and %d went in %v; Check: %v, Kick: %v, ledger:%s",
				after, w.received-received, w.sent-sent, time.Since(begin), w.i.Check(), w.kick, show(l))
		}
	}
	w.Logf("%s: well after %v", after, time.Since(begin))
}

// discharge closes the card and checks that nothing is left behind.
func (w *ward) discharge() {
	w.Helper()
	begin := time.Now()
	testenv.Checkf(w, w.i.Close(), "close")
	if took := time.Since(begin); took > 10*time.Second {
		w.Errorf("Close took %v", took)
	}
	w.Logf("closed after %v", time.Since(begin))
	w.letGo()
	w.nothingLeft()
}

// letGo closes the card, unless the test has done so, and gives the frames back.
func (w *ward) letGo() {
	if w.i != nil {
		_ = w.i.Close()
	}
	for at, fs := range w.free {
		w.worker.Give(fs)
		w.free[at] = nil
	}
}

// nothingLeft checks that no frames and registrations are left behind.
func (w *ward) nothingLeft() {
	w.Helper()
	count, err := w.region.Audit()
	if held := w.worker.Held(); err != nil || held != 0 || count.Of(umem.OwnerPool) != w.region.Frames() {
		w.Errorf("after Close %v, %v; the worker has %d frames", count, err, held)
	}
	if names := w.region.Registered(); len(names) > 0 {
		w.Errorf("after Close registered: %v", names)
	}
}

// untouched fails the test if a card has a program, is promiscuous, or has another setting for VLAN
// tags than before.
func untouched(t testing.TB, e *testenv.End, stripped bool) {
	t.Helper()
	e.Do(t, func() {
		link, err := netlink.LinkByName(e.Ifname)
		testenv.Must(t, err)
		a := link.Attrs()
		if a.Xdp != nil && a.Xdp.Attached {
			t.Errorf("program %d is attached to %s", a.Xdp.ProgId, e.Ifname)
		}
		if a.Promisc != 0 {
			t.Errorf("%s is in promiscuous mode for %d", e.Ifname, a.Promisc)
		}
	})
	if now := strips(t, e); now != stripped {
		t.Errorf("%s takes VLAN tags out: %v, before: %v", e.Ifname, now, stripped)
	}
}

// strips reports whether the card removes VLAN tags from packets.
func strips(t testing.TB, e *testenv.End) bool {
	t.Helper()
	return bytes.Contains([]byte(e.Run(t, "ethtool", "-k", e.Ifname)), []byte("rx-vlan-offload: on"))
}
