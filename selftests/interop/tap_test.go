package interop

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// TestTap: an AF_XDP socket on a tap interface receives and sends whole packets up to its MTU, in
// several frames, with the program in driver mode.
func TestTap(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	tap := testenv.NewTap(t, testenv.PairOptions{MTU: mtu, NoAddresses: true})
	const size = 16 << 20
	testenv.HugePages(t, size)
	region, err := umem.Open(umem.Config{Size: size})
	testenv.Must(t, err)
	defer region.Close()
	book := region.NewBook("test")
	defer book.Close()
	holder, err := book.NewHolder(umem.OwnerWorker, "test")
	testenv.Must(t, err)
	defer holder.Close()
	var i *xdp.Interface
	tap.Do(t, func() {
		i, err = xdp.Open(xdp.Config{Interface: tap.Ifname, Holder: holder, Shape: umem.Shape{Headroom: 202, MultiBuffer: true}, Promiscuous: true})
		if err == nil {
			err = i.Start()
		}
	})
	testenv.Must(t, err)
	defer i.Close()
	if g := i.Granted(); !g.MultiBuffer || g.Mode != bpf.Driver || len(i.Ports()) != 1 {
		t.Errorf("%d queues, %+v", len(i.Ports()), g)
	}
	bounce(t, tap, i.Ports()[0], holder)
}

// bounce writes packets to the interface's other end. The socket sends them back from the frames in
// which they arrived.
func bounce(t *testing.T, tap *testenv.Tap, port *xdp.Port, holder *umem.Holder) {
	t.Helper()
	frames := make([]umem.Frame, 64)
	if n := holder.Take(frames); port.Supply(frames[:n]) != n {
		t.Fatal("the fill ring is too short")
	}
	for _, size := range []int{60, 1514, 3600, 3700, 4000, mtu + 14} {
		packet := make([]byte, size)
		for i := range packet[14:] {
			packet[14+i] = byte(rand.Uint32())
		}
		copy(packet, tap.MAC)
		if _, err := tap.File.Write(packet); err != nil {
			t.Fatal(err)
		}
		var n int
		testenv.Wait(t, 5*time.Second, "a packet", func() bool { n = port.Recv(frames); return n > 0 })
		if port.Send(frames[:n]) != n || port.Kick() != nil {
			t.Fatalf("%d frames are not sent", n)
		}
		back := make([]byte, 1<<16)
		got, err := tap.File.Read(back)
		if err != nil || !bytes.Equal(back[:got], packet) {
			t.Errorf("%d bytes in %d frames come back as %d: %v", size, n, got, err)
		}
		testenv.Wait(t, 5*time.Second, "the frames", func() bool { n -= holderTakes(port, holder, frames); return n == 0 })
	}
}

func holderTakes(port *xdp.Port, holder *umem.Holder, frames []umem.Frame) int {
	n := port.Reap(frames)
	holder.Give(frames[:n])
	return n
}
