package xdp

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/bpf/filter"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// TestReceive is the kernel's SEND_RECEIVE, 2K_FRAME and UMEM_HEADROOM: packets arrive in order and
// unchanged, at the shape's offset, in frames that were supplied.
func TestReceive(t *testing.T) {
	for _, c := range []struct {
		name     string
		frame    uint32
		headroom uint32
		size     int
		mode     bpf.Mode
	}{
		{"4096", 4096, 0, 1024, bpf.Any},
		{"2048", 2048, 0, 1514, bpf.Any},
		{"headroom 202", 4096, 202, 1514, bpf.Any},
		{"headroom 284", 4096, 284, 1514, bpf.Any},
		{"smallest", 4096, 0, 60, bpf.Any},
		{"generic", 4096, 284, 1514, bpf.Generic},
	} {
		t.Run(c.name, func(t *testing.T) {
			pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
			g := newRig(t, umem.Config{Size: 16 << 20, FrameSize: c.frame})
			shape := umem.Shape{Headroom: c.headroom}
			i := g.open(&pair.B, Config{Shape: shape, Mode: c.mode})
			g.checkArrival(i, pair, shape, c.size)
		})
	}
}

// checkArrival sends 200 packets, in two halves, and compares what arrives.
func (g *rig) checkArrival(i *Interface, pair *testenv.Pair, shape umem.Shape, size int) {
	g.Helper()
	p := i.Ports()[0]
	supplied := make([]umem.Frame, 200)
	g.worker.Take(supplied)
	given := make(map[uint64]bool)
	for _, f := range supplied {
		given[f.Addr] = true
	}
	if n := p.Supply(supplied); n != len(supplied) || p.Kick() != nil {
		g.Fatalf("Supply took %d", n)
	}
	g.start(i)
	sent := packets(&pair.A, &pair.B, 200, size)
	for half := range 2 {
		part := sent[half*100 : half*100+100]
		testenv.SendRaw(g, &pair.A, part, testenv.SendOptions{})
		for n, f := range g.receive(p, len(part)) {
			start, _ := g.region.Start(f)
			switch {
			case !bytes.Equal(g.region.Bytes(f), part[n]):
				g.Fatalf("packet %d differs", n)
			case f.Addr != start+uint64(shape.Offset()):
				g.Fatalf("packet %d landed at byte %d of its frame, the shape says %d", n, f.Addr-start, shape.Offset())
			case !given[start] && p.reserve == 0:
				g.Fatalf("packet %d landed in the frame at %#x, which was not supplied or had a packet before", n, start)
			}
			delete(given, start)
		}
	}
	g.balanced(i, 200)
}

// balanced checks the ledger at rest: it has that many packets offered, each with one reason.
func (g *rig) balanced(i *Interface, offered uint64) Ledger {
	g.Helper()
	l, err := i.Ledger()
	testenv.Must(g, err)
	if l.Offered != offered || l.Missing() != 0 {
		g.Errorf("the ledger has %d offered and %d missing, want %d and 0:%s", l.Offered, l.Missing(), offered, show(l))
	}
	return l
}

// show lists a ledger's reasons.
func show(l Ledger) string {
	var s string
	for _, r := range Reasons() {
		s += fmt.Sprintf(" %v %d", r, l.Of(r))
	}
	return s
}

func TestSinglePacket(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	i := g.open(&pair.B, Config{})
	p := i.Ports()[0]
	g.supply(p, 1)
	g.start(i)
	testenv.SendRaw(t, &pair.A, packets(&pair.A, &pair.B, 1, 64), testenv.SendOptions{})
	f := g.receive(p, 1)[0]
	if f.Len != 64 || g.region.Side(f).Queue != 0 {
		t.Errorf("received %d bytes of queue %d", f.Len, g.region.Side(f).Queue)
	}
	if n := p.Supply([]umem.Frame{f}); n != 1 {
		t.Errorf("the frame is not taken again: %d", n)
	}
	s := g.stats(p)
	if want := (Traffic{Packets: 1, Frames: 1, Bytes: 64}); s.Received != want {
		t.Errorf("counted %+v, want %+v", s.Received, want)
	}
}

// TestMultiBuffer: packets of up to 9000 bytes arrive in several frames, and leave in several,
// wherever the program is.
func TestMultiBuffer(t *testing.T) {
	needFragments(t)
	for _, mode := range []bpf.Mode{bpf.Driver, bpf.Generic} {
		t.Run(mode.String(), func(t *testing.T) { testMultiBuffer(t, mode) })
	}
}

func testMultiBuffer(t *testing.T, mode bpf.Mode) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true, MTU: 9000})
	g := newRig(t, small())
	i := g.open(&pair.B, Config{Shape: umem.Shape{Headroom: 284, MultiBuffer: true}, RingSize: 1024, Mode: mode})
	if !i.Granted().MultiBuffer || i.Granted().MaxPacket != 0 || i.Granted().Mode != mode {
		t.Fatalf("granted %+v", i.Granted())
	}
	p := i.Ports()[0]
	g.supply(p, 600)
	g.start(i)
	peer := listen(t, &pair.A)
	var sent [][]byte
	for n, size := range []int{60, 3000, 3812, 3813, 4096, 7000, 9014, 60, 9014} {
		sent = append(sent, packet(&pair.A, &pair.B, uint32(n), size))
	}
	testenv.SendRaw(t, &pair.A, sent, testenv.SendOptions{})
	frames := g.receive(p, len(sent))
	rest := frames
	for n, want := range sent {
		var whole []byte
		for {
			whole = append(whole, g.region.Bytes(rest[0])...)
			more := rest[0].Continues()
			rest = rest[1:]
			if !more {
				break
			}
		}
		if !bytes.Equal(whole, want) {
			t.Fatalf("packet %d of %d bytes came as %d bytes, or changed", n, len(want), len(whole))
		}
	}
	if n := p.Send(frames); n != len(frames) {
		t.Fatalf("Send took %d of %d frames", n, len(frames))
	}
	g.finishSending(p, len(frames))
	peer.expect(t, sent)
	g.balanced(i, uint64(len(sent)))
}

// TestTooLong: packets that no frame can hold go to the kernel, where the host sees them, and are counted.
func TestTooLong(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true, MTU: 9000})
	g := newRig(t, small())
	i := g.open(&pair.B, Config{})
	room := i.Granted().MaxPacket
	if i.Granted().MultiBuffer || room != 3840 {
		t.Fatalf("granted %+v, want no multi-buffer and packets up to 3840 bytes", i.Granted())
	}
	p := i.Ports()[0]
	g.supply(p, 64)
	g.start(i)
	peer := listen(t, &pair.B)
	sent := [][]byte{
		packet(&pair.A, &pair.B, 0, int(room)), packet(&pair.A, &pair.B, 1, int(room)+1),
		packet(&pair.A, &pair.B, 2, 9000), packet(&pair.A, &pair.B, 3, 100),
	}
	testenv.SendRaw(t, &pair.A, sent, testenv.SendOptions{})
	got := g.receive(p, 2)
	if !bytes.Equal(g.region.Bytes(got[0]), sent[0]) || !bytes.Equal(g.region.Bytes(got[1]), sent[3]) {
		t.Error("the packets that fit differ")
	}
	peer.expect(t, sent[1:3])
	if l := g.balanced(i, 4); l.Of(KernelTooLong) != 2 || l.Of(Received) != 2 {
		t.Errorf("ledger:%s", show(l))
	}
}

// TestFilter: packets that do not match the filter go to the kernel, also after an exchange of the filter.
func TestFilter(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	none, err := filter.Parse("arp")
	testenv.Must(t, err)
	i := g.open(&pair.B, Config{Filter: none})
	p := i.Ports()[0]
	g.supply(p, 64)
	g.start(i)
	testenv.SendRaw(t, &pair.A, packets(&pair.A, &pair.B, 5, 100), testenv.SendOptions{})
	g.quiet(p)
	testenv.Must(t, i.SetFilter(nil))
	testenv.Checkf(t, i.Check(), "after the filter was exchanged")
	testenv.SendRaw(t, &pair.A, packets(&pair.A, &pair.B, 7, 100), testenv.SendOptions{})
	g.receive(p, 7)
	if l := g.balanced(i, 12); l.Of(KernelNoMatch) != 5 {
		t.Errorf("ledger:%s", show(l))
	}
}

// TestStartStop: packets go to the kernel before Start and after Stop.
func TestStartStop(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	i := g.open(&pair.B, Config{})
	p := i.Ports()[0]
	g.supply(p, 64)
	send := func(n int) {
		testenv.SendRaw(t, &pair.A, packets(&pair.A, &pair.B, n, 100), testenv.SendOptions{})
	}
	send(3)
	g.quiet(p)
	g.start(i)
	send(4)
	g.receive(p, 4)
	testenv.Must(t, i.Stop())
	send(5)
	g.quiet(p)
	if l := g.balanced(i, 12); l.Of(KernelNoSocket) != 8 {
		t.Errorf("ledger:%s", show(l))
	}
	g.start(i)
	send(6)
	g.receive(p, 6)
}

// TestTimestamps: with Config.Timestamps the stamps are times of arrival, between readings of the
// clock before and after the send. Without it they are the time of Recv.
func TestTimestamps(t *testing.T) {
	for _, on := range []bool{true, false} {
		t.Run(fmt.Sprint(on), func(t *testing.T) {
			pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
			g := newRig(t, small())
			i := g.open(&pair.B, Config{Timestamps: on})
			p := i.Ports()[0]
			g.supply(p, 64)
			g.start(i)
			before := uint64(time.Now().UnixNano())
			testenv.SendRaw(t, &pair.A, packets(&pair.A, &pair.B, 30, 100), testenv.SendOptions{})
			testenv.Wait(t, time.Second, "the packets", func() bool { return g.stats(p).Waiting == 30 })
			arrived := uint64(time.Now().UnixNano())
			time.Sleep(20 * time.Millisecond)
			last := before - uint64(time.Millisecond) // of clock reading
			for n, f := range g.receive(p, 30) {
				stamp := g.region.Side(f).Stamp
				if stamp < last {
					t.Fatalf("packet %d has stamp %d, before %d", n, stamp, last)
				}
				if on != (stamp <= arrived+uint64(time.Millisecond)) {
					t.Fatalf("packet %d was stamped %v after all had arrived; arrival times are on: %v", n, time.Duration(stamp-arrived), on)
				}
				last = stamp
			}
			if on && i.program.MetaRefused() {
				t.Error("veth is said to refuse metadata")
			}
		})
	}
}

// TestPollReceive: FD is not readable before a packet arrives and readable after it. poll ends at
// its time-out.
func TestPollReceive(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	i := g.open(&pair.B, Config{Direction: Receive})
	p := i.Ports()[0]
	g.supply(p, 64)
	g.start(i)
	if n := poll(t, p, unix.POLLIN, 20); n != 0 {
		t.Fatal("readable with nothing there")
	}
	testenv.SendRaw(t, &pair.A, packets(&pair.A, &pair.B, 3, 100), testenv.SendOptions{})
	if n := poll(t, p, unix.POLLIN, 1000); n != 1 {
		t.Fatal("not readable with packets there")
	}
	g.receive(p, 3)
	if n := poll(t, p, unix.POLLIN, 20); n != 0 {
		t.Fatal("readable with everything taken")
	}
}

func poll(t *testing.T, p *Port, events int16, ms int) int {
	t.Helper()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.FD()), Events: events}}, ms)
		if err == unix.EINTR {
			continue
		}
		testenv.Must(t, err)
		return n
	}
}

// TestUpperRegion: the last frames of a larger region can receive and send.
func TestUpperRegion(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, umem.Config{Size: 64 << 20})
	i := g.open(&pair.B, Config{})
	p := i.Ports()[0]
	all := make([]umem.Frame, g.region.Frames())
	all = all[:g.worker.Take(all)]
	var upper, lower []umem.Frame
	for _, f := range all {
		if f.Addr >= g.region.Size()-100*4096 {
			upper = append(upper, f)
		} else {
			lower = append(lower, f)
		}
	}
	g.worker.Give(lower)
	if n := p.Supply(upper); n != 100 || p.Kick() != nil {
		t.Fatalf("Supply took %d", n)
	}
	g.start(i)
	sent := packets(&pair.A, &pair.B, 100, 800)
	testenv.SendRaw(t, &pair.A, sent, testenv.SendOptions{})
	peer := listen(t, &pair.A)
	got := g.receive(p, 100)
	for n, f := range got {
		if f.Addr < g.region.Size()-100*4096 || !bytes.Equal(g.region.Bytes(f), sent[n]) {
			t.Fatalf("packet %d is at %#x, or changed", n, f.Addr)
		}
		sent[n] = packet(&pair.B, &pair.A, uint32(n), 800) // a card accepts only packets for its address
		copy(g.region.Bytes(f), sent[n])
	}
	if n := p.Send(got); n != 100 {
		t.Fatalf("Send took %d", n)
	}
	g.finishSending(p, 100)
	peer.expect(t, sent)
}

// TestUnstamped: with Config.Unstamped Recv does not change the stamp.
func TestUnstamped(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	i := g.open(&pair.B, Config{Unstamped: true})
	p := i.Ports()[0]
	g.supply(p, 1)
	g.start(i)
	g.region.Side(umem.Frame{}).Stamp = 7 // the first frame was supplied
	testenv.SendRaw(t, &pair.A, packets(&pair.A, &pair.B, 1, 64), testenv.SendOptions{})
	f := g.receive(p, 1)[0]
	if stamp := g.region.Side(f).Stamp; f.Addr >= uint64(g.region.FrameSize()) || stamp != 7 {
		t.Errorf("the frame at %#x has stamp %d", f.Addr, stamp)
	}
	if _, err := g.tryOpen(&pair.B, Config{Queues: []uint32{0}, Timestamps: true, Unstamped: true}); err == nil {
		t.Error("stamps that are asked for and not wanted are accepted")
	}
}
