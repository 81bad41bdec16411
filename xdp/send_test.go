package xdp

import (
	"bytes"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// TestSend: a packet socket at the other end receives every packet unchanged.
func TestSend(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	i := g.open(&pair.A, Config{Direction: Send})
	p := i.Ports()[0]
	if l := p.Limits(); l.Supply != 0 || l.Send != 256 || l.Frames != 1 || l.Message != 1518 {
		t.Errorf("limits %+v", l)
	}
	peer := listen(t, &pair.B)
	var sent [][]byte
	for n := range 250 {
		sent = append(sent, packet(&pair.A, &pair.B, uint32(n), 60+n*1454/249))
	}
	if n := p.Send(g.load(sent)); n != len(sent) {
		t.Fatalf("Send took %d of %d", n, len(sent))
	}
	g.finishSending(p, len(sent))
	peer.expect(t, sent)
	s := g.stats(p)
	if s.Sent.Packets != 250 || s.Completed != 250 || s.Refused != 0 || s.Kernel.TxInvalid != 0 {
		t.Errorf("stats %+v", s)
	}
}

// TestSendTcpdump: tcpdump at the other end writes every packet unchanged.
func TestSendTcpdump(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	i := g.open(&pair.A, Config{Direction: Send})
	file := filepath.Join(t.TempDir(), "peer.pcap")
	sent := packets(&pair.A, &pair.B, 100, 777)
	cmd := pair.B.Command(testenv.Tool(t, "tcpdump"), "-i", pair.B.Ifname, "-w", file, "-U", "-c", "100", "-Q", "in", "ether proto 0x88b5")
	var log bytes.Buffer
	cmd.Stderr = &log
	testenv.Must(t, cmd.Start())
	stop := time.AfterFunc(60*time.Second, func() { cmd.Process.Kill() })
	defer stop.Stop()
	testenv.Wait(t, 30*time.Second, "tcpdump to listen", func() bool { return fileExists(file) })
	time.Sleep(100 * time.Millisecond) // tcpdump makes the file slightly before it opens its socket
	p := i.Ports()[0]
	p.Send(g.load(sent))
	g.finishSending(p, len(sent))
	if err := cmd.Wait(); err != nil {
		var exit *exec.ExitError
		t.Fatalf("tcpdump: %v %v\n%s", err, errors.As(err, &exit), log.Bytes())
	}
	comparePcap(t, file, sent)
}

func comparePcap(t *testing.T, file string, want [][]byte) {
	t.Helper()
	f := openFile(t, file)
	defer f.Close()
	r, err := pcapgo.NewReader(f)
	testenv.Must(t, err)
	for n, w := range want {
		got, _, err := r.ReadPacketData()
		if err != nil || !bytes.Equal(got, w) {
			t.Fatalf("packet %d in tcpdump's file: %d bytes, %v; sent were %d", n, len(got), err, len(w))
		}
	}
}

// TestBidirectional: both ends can send and receive at once.
func TestBidirectional(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	a, b := g.open(&pair.A, Config{}), g.open(&pair.B, Config{})
	pa, pb := a.Ports()[0], b.Ports()[0]
	for _, i := range []*Interface{a, b} {
		g.supply(i.Ports()[0], 200)
		g.start(i)
	}
	there, back := packets(&pair.A, &pair.B, 150, 700), packets(&pair.B, &pair.A, 150, 900)
	pa.Send(g.load(there))
	pb.Send(g.load(back))
	g.finishSending(pa, 150)
	g.finishSending(pb, 150)
	for n, f := range g.receive(pb, 150) {
		if !bytes.Equal(g.region.Bytes(f), there[n]) {
			t.Fatalf("packet %d there differs", n)
		}
	}
	for n, f := range g.receive(pa, 150) {
		if !bytes.Equal(g.region.Bytes(f), back[n]) {
			t.Fatalf("packet %d back differs", n)
		}
	}
	g.balanced(a, 150)
	g.balanced(b, 150)
}

// TestRefusedMessages: Reap returns packets that the kernel would not accept as failed. The kernel
// never sees them, and their neighbours are sent.
func TestRefusedMessages(t *testing.T) {
	needFragments(t)
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true, MTU: 9000})
	g := newRig(t, small())
	i := g.open(&pair.A, Config{Direction: Send, Shape: umem.Shape{MultiBuffer: true}})
	p := i.Ports()[0]
	peer := listen(t, &pair.B)
	good := packets(&pair.A, &pair.B, 8, 300)
	fs := g.load(append(good, packets(&pair.A, &pair.B, 7, 300)...))
	ok, bad := fs[:8], fs[8:]
	bad[0].Len = 0
	bad[1].Len = 13
	bad[2].Addr += 3600 // 256 + 3600 + 300 leaves the frame
	bad[3].Len = 4096
	bad[4].Options |= umem.More // a valid head, and an empty tail
	bad[5].Len = 0
	bad[6].Len = 3841
	mixed := []umem.Frame{ok[0], bad[0], ok[1], bad[1], ok[2], bad[2], ok[3], bad[3], ok[4], bad[4], bad[5], ok[5], bad[6], ok[6], ok[7]}
	if n := p.Send(mixed); n != len(mixed) {
		t.Fatalf("Send took %d of %d", n, len(mixed))
	}
	failed := g.finishSending(p, len(mixed))
	if len(failed) != len(bad) {
		t.Errorf("%d frames failed, want %d", len(failed), len(bad))
	}
	for _, f := range failed {
		if !errors.Is(f.Err(), unix.EINVAL) {
			t.Errorf("frame at %#x failed with %v", f.Addr, f.Err())
		}
	}
	peer.expect(t, good)
	if s := g.stats(p); s.Kernel.TxInvalid != 0 || s.Refused != uint64(len(bad)) {
		t.Errorf("the kernel refused %d, we %d of %d", s.Kernel.TxInvalid, s.Refused, len(bad))
	}
}

// TestTooManyFrames: Send refuses chains longer than the kernel's limit, and sends the longest allowed one.
func TestTooManyFrames(t *testing.T) {
	needFragments(t)
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true, MTU: 9000})
	g := newRig(t, small())
	i := g.open(&pair.A, Config{Direction: Send, Shape: umem.Shape{MultiBuffer: true}})
	p := i.Ports()[0]
	peer := listen(t, &pair.B)
	whole := packet(&pair.A, &pair.B, 1, 18*100)
	chain := func(n int) []umem.Frame {
		var parts [][]byte
		for k := range n {
			parts = append(parts, whole[k*100:k*100+100])
		}
		fs := g.load(parts)
		for k := range fs[:n-1] {
			fs[k].Options = umem.More
		}
		return fs
	}
	most := p.Limits().Frames
	if most != maxFrags {
		t.Fatalf("limits %+v", p.Limits())
	}
	p.Send(chain(most))
	p.Send(chain(most + 1))
	p.Send(chain(2))
	failed := g.finishSending(p, most+most+1+2)
	if len(failed) != most+1 || !errors.Is(failed[0].Err(), unix.EMSGSIZE) {
		t.Errorf("%d frames failed, %v", len(failed), failed[0].Err())
	}
	peer.expect(t, [][]byte{whole[:most*100], whole[:200]})
	if s := g.stats(p); s.Kernel.TxInvalid != 0 || s.Sent.Packets != 2 {
		t.Errorf("stats %+v", s)
	}
}

// TestInvalidDescriptors is the kernel's STAT_TX_INVALID: if descriptors bypass our checks, the
// kernel counts the bad ones and sends the good ones. Some kernels complete the bad ones, some do
// not. Close returns every frame in both cases.
func TestInvalidDescriptors(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	i := g.open(&pair.A, Config{Direction: Send})
	p := i.Ports()[0]
	peer := listen(t, &pair.B)
	good := packets(&pair.A, &pair.B, 4, 300)
	fs := g.load(good)
	g.worker.PassTo(p.held, fs)
	for n, f := range []umem.Frame{
		fs[0], {Addr: g.region.Size(), Len: 64}, fs[1], {Addr: ^uint64(0) - 7, Len: 64},
		fs[2], {Addr: fs[2].Addr, Len: 4096}, {Addr: fs[2].Addr, Len: 64, Options: 1 << 9}, fs[3],
	} {
		p.rings.tx.set(uint32(n), f)
	}
	p.rings.tx.publish(8)
	testenv.Wait(t, time.Second, "the kernel to look at all descriptors", func() bool {
		testenv.Must(t, p.Kick())
		return !p.rings.tx.pending()
	})
	peer.expect(t, good)
	if s := g.stats(p); s.Kernel.TxInvalid != 4 {
		t.Errorf("the kernel counted %d invalid descriptors, want 4", s.Kernel.TxInvalid)
	}
	testenv.Wait(t, time.Second, "the good frames to be completed", func() bool {
		done := make(map[uint64]bool)
		for n := range p.rings.completion.waiting(8) {
			done[p.rings.completion.at(n)] = true
		}
		return !slices.ContainsFunc(fs, func(f umem.Frame) bool { return !done[f.Addr] })
	})
}

// TestPollSend is the kernel's POLL_TX: poll makes the kernel send too.
func TestPollSend(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	i := g.open(&pair.A, Config{Direction: Send})
	p := i.Ports()[0]
	peer := listen(t, &pair.B)
	sent := packets(&pair.A, &pair.B, 20, 300)
	p.Send(g.load(sent))
	if n := poll(t, p, unix.POLLOUT, 1000); n != 1 {
		t.Fatal("not writable")
	}
	peer.expect(t, sent)
	g.finishSending(p, 20)
}

// TestSendNobodyListens: while the other end is down, the device drops packets, and Reap still
// returns their frames.
func TestSendNobodyListens(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	i := g.open(&pair.A, Config{Direction: Send})
	p := i.Ports()[0]
	pair.B.SetDown(t)
	p.Send(g.load(packets(&pair.A, &pair.B, 40, 300)))
	g.finishSending(p, 40)
	testenv.Wait(t, 5*time.Second, "Check to see no carrier", func() bool { return errors.Is(i.Check(), ErrInterfaceDown) })
	pair.B.SetUp(t)
	testenv.Checkf(t, i.Check(), "Check")
}

// TestOtherDirection: the verbs of rings that a port does not have return 0.
func TestOtherDirection(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	frames := make([]umem.Frame, 4)
	for _, d := range []Direction{Receive, Send} {
		p := g.open(&pair.A, Config{Direction: d}).Ports()[0]
		if d == Send && (p.Supply(frames) != 0 || p.Recv(frames) != 0) {
			t.Error("a port that sends takes or gives packets")
		}
		if d == Receive && (p.Send(frames) != 0 || p.Reap(frames) != 0) {
			t.Error("a port that receives sends")
		}
		testenv.Check(t, p.Kick())
		testenv.Check(t, p.Close())
	}
}
