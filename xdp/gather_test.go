package xdp

import (
	"errors"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// gatherer is a port that sends packets in parts: heads of the worker, and payload in frames of
// another holder, which stay there.
type gatherer struct {
	*rig
	port  *Port
	other *umem.Holder
	parts []umem.Frame
}

func newGatherer(t *testing.T, pair *testenv.Pair) *gatherer {
	t.Helper()
	needFragments(t)
	g := &gatherer{rig: newRig(t, small())}
	var err error
	g.other, err = g.book.NewHolder(umem.OwnerRDMA, "others")
	testenv.Must(t, err)
	g.parts = make([]umem.Frame, 64)
	g.other.Take(g.parts)
	t.Cleanup(func() { g.other.Give(g.parts); g.other.Close() })
	g.port = g.open(&pair.A, Config{Direction: Send, Gather: true, Shape: umem.Shape{MultiBuffer: true}}).Ports()[0]
	return g
}

// gather cuts a packet into a head, runs in frames of the other holder from number first on, and a
// tail after the head.
func (g *gatherer) gather(whole []byte, first int) []umem.Frame {
	g.Helper()
	end := len(whole) - 4
	cut := [][]byte{whole[:54], whole[54 : 54+(end-54)/2], whole[54+(end-54)/2 : end]}
	message := g.load(cut[:1])
	tail := umem.Frame{Addr: message[0].Addr + 2048, Len: 4}
	for i, b := range cut[1:] {
		f := umem.Frame{Addr: g.parts[first+i].Addr + 10 + uint64(i), Len: uint32(len(b))}
		copy(g.region.Bytes(f), b)
		message = append(message, f)
	}
	copy(g.region.Bytes(tail), whole[end:])
	return append(message, tail)
}

// TestSendGathered: packets whose payload is in frames of another holder arrive whole. Reap returns
// only the heads, each once.
func TestSendGathered(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true, MTU: 4200})
	g := newGatherer(t, pair)
	peer := listen(t, &pair.B)
	var sent [][]byte
	for n := range 32 {
		whole := packet(&pair.A, &pair.B, uint32(n), 200+n*120)
		sent = append(sent, whole)
		if !g.port.SendGathered(g.gather(whole, 2*n)) {
			t.Fatalf("packet %d was not taken", n)
		}
		plain := packet(&pair.A, &pair.B, uint32(100+n), 100) // an ordinary packet between gathered ones
		sent = append(sent, plain)
		if g.port.Send(g.load([][]byte{plain})) != 1 {
			t.Fatal("a plain packet was not taken")
		}
	}
	if failed := g.finishSending(g.port, 64); len(failed) != 0 {
		t.Errorf("%d frames failed", len(failed))
	}
	peer.expect(t, sent)
	if n := g.port.Reap(make([]umem.Frame, 8)); n != 0 || g.port.sent != 0 {
		t.Errorf("%d frames more came back, and %d are said to be sent", n, g.port.sent)
	}
	if held := g.other.Held(); held != 64 {
		t.Errorf("the other holder has %d frames, not 64", held)
	}
	if s := g.stats(g.port); s.Sent.Packets != 64 || s.Sent.Frames != 32*5 || s.Completed != 32*5 || s.Kernel.TxInvalid != 0 {
		t.Errorf("stats %+v", s)
	}
}

// TestSendGatheredRoom: SendGathered refuses a whole packet while the ring is full, and takes it later.
func TestSendGatheredRoom(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newGatherer(t, pair)
	whole := packet(&pair.A, &pair.B, 1, 300)
	n := 0
	for ; n < 100; n++ {
		message := g.gather(whole, 0)
		if !g.port.SendGathered(message) {
			g.worker.Give(message[:1])
			break
		}
	}
	if room := g.port.Room(); room != g.port.Limits().Send%4 {
		t.Errorf("there is room for %d parts, where there is none for a packet", room)
	}
	if n != g.port.Limits().Send/4 {
		t.Errorf("%d packets of 4 parts were taken by a ring of %d", n, g.port.Limits().Send)
	}
	g.finishSending(g.port, n)
	if !g.port.SendGathered(g.gather(whole, 0)) {
		t.Error("none is taken once the ring is empty")
	}
	g.finishSending(g.port, 1)
}

// TestSendGatheredRefused: Reap returns the head of a packet that the kernel would not accept.
func TestSendGatheredRefused(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newGatherer(t, pair)
	whole := packet(&pair.A, &pair.B, 1, 300)
	for name, spoil := range map[string]func(m []umem.Frame) ([]umem.Frame, unix.Errno){
		"beyond the region":  func(m []umem.Frame) ([]umem.Frame, unix.Errno) { m[1].Addr = g.region.Size(); return m, unix.EFAULT },
		"far beyond":         func(m []umem.Frame) ([]umem.Frame, unix.Errno) { m[1].Addr = ^uint64(0); return m, unix.EFAULT },
		"over a frame's end": func(m []umem.Frame) ([]umem.Frame, unix.Errno) { m[2].Addr |= 4095; return m, unix.EINVAL },
		"an empty part":      func(m []umem.Frame) ([]umem.Frame, unix.Errno) { m[1].Len = 0; return m, unix.EINVAL },
		"too long":           func(m []umem.Frame) ([]umem.Frame, unix.Errno) { m[1].Len = 3000; return m, unix.EMSGSIZE },
		"too many": func(m []umem.Frame) ([]umem.Frame, unix.Errno) {
			return append(m, slices.Repeat(m[1:2], maxFrags)...), unix.EMSGSIZE
		},
	} {
		message, want := spoil(g.gather(whole, 0))
		if !g.port.SendGathered(message) {
			t.Fatalf("%s: not taken", name)
		}
		failed := g.finishSending(g.port, 1)
		if len(failed) != 1 || !errors.Is(failed[0].Err(), want) {
			t.Errorf("%s: %d failed, want one with %v", name, len(failed), want)
		}
	}
	plain := g.open(&pair.B, Config{Direction: Send}).Ports()[0]
	message := g.gather(whole, 0)
	if plain.SendGathered(message) || g.port.SendGathered(nil) {
		t.Error("a port without Gather takes parts, or one with it takes nothing")
	}
	g.worker.Give(message[:1])
}

// TestSendGatheredDisorder: if the parts of packets complete in any order, Reap returns a frame
// with its last part.
func TestSendGatheredDisorder(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newGatherer(t, pair)
	var heads []uint64
	var parts []uint64
	for n := range 3 {
		message := g.gather(packet(&pair.A, &pair.B, uint32(n), 300), 2*n)
		g.port.queue(message) // not published, so the kernel does not see it
		heads = append(heads, message[0].Addr)
		for _, f := range slices.Backward(message) {
			parts = append(parts, f.Addr)
		}
		defer g.worker.Give(message[:1])
	}
	var given []uint64
	for _, addr := range parts {
		if g.port.last(addr) {
			given = append(given, addr)
		}
	}
	if !slices.Equal(given, heads) {
		t.Errorf("given were %#x, want %#x", given, heads)
	}
}

// TestSendGatheredNoAllocations: SendGathered and Reap do not allocate.
func TestSendGatheredNoAllocations(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newGatherer(t, pair)
	message, one := g.gather(packet(&pair.A, &pair.B, 1, 300), 0), make([]umem.Frame, 1)
	if n := testenv.AllocsPerRun(t, 200, func() {
		if !g.port.SendGathered(message) || g.port.Kick() != nil {
			t.Fatal("not sent")
		}
		for end := time.Now().Add(2 * time.Second); g.port.Reap(one) == 0; {
			if time.Now().After(end) {
				t.Fatal("the head did not come back")
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations for a packet", n)
	}
	g.worker.Give(message[:1])
}
