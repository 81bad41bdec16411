package xdp

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// peer reads what the kernel sees at an end, through a packet socket, without code of this package.
type peer struct{ fd int }

// listen opens a peer, which sees packets of the tests from then on.
func listen(t testing.TB, e *testenv.End) *peer {
	t.Helper()
	p := &peer{fd: -1}
	proto := binary.NativeEndian.Uint16([]byte{etherType >> 8, etherType & 0xff})
	e.Do(t, func() {
		var err error
		p.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(proto))
		testenv.Must(t, err)
	})
	t.Cleanup(func() { unix.Close(p.fd) })
	testenv.Must(t, unix.Bind(p.fd, &unix.SockaddrLinklayer{Protocol: proto, Ifindex: e.Index}))
	timeout := unix.NsecToTimeval(int64(2 * time.Second))
	testenv.Must(t, unix.SetsockoptTimeval(p.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout))
	testenv.Must(t, unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20))
	return p
}

// next returns the next packet that arrived, nil if none does within two seconds. A packet socket
// also sees what the end itself sends; next omits that.
func (p *peer) next(t testing.TB) []byte {
	t.Helper()
	b := make([]byte, 1<<16)
	for {
		n, from, err := unix.Recvfrom(p.fd, b, 0)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return nil
		case err != nil:
			t.Fatal(err)
		}
		if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		return b[:n]
	}
}

// expect reads packets and compares them, byte for byte and in order.
func (p *peer) expect(t testing.TB, want [][]byte) {
	t.Helper()
	for n, w := range want {
		if got := p.next(t); !bytes.Equal(got, w) {
			t.Fatalf("packet %d: the other end saw %d bytes, sent were %d (or they differ)", n, len(got), len(w))
		}
	}
}

// load takes frames of the pool and writes packets into them.
func (g *rig) load(ps [][]byte) []umem.Frame {
	g.Helper()
	fs := make([]umem.Frame, len(ps))
	if n := g.worker.Take(fs); n < len(fs) {
		g.Fatalf("the pool had %d of %d frames", n, len(fs))
	}
	for n := range fs {
		fs[n].Addr += 256
		fs[n].Len = uint32(len(ps[n]))
		copy(g.region.Bytes(fs[n]), ps[n])
	}
	return fs
}

// finishSending kicks until n frames are reaped, and gives them to the pool. It returns those that failed.
func (g *rig) finishSending(p *Port, n int) (failed []umem.Frame) {
	g.Helper()
	batch := make([]umem.Frame, 64)
	testenv.Wait(g, 2*time.Second, "the frames sent", func() bool {
		testenv.Must(g, p.Kick())
		for got := p.Reap(batch); got > 0; got = p.Reap(batch) {
			for _, f := range batch[:got] {
				if f.Err() != nil {
					failed = append(failed, f)
				}
			}
			g.worker.Give(batch[:got])
			n -= got
		}
		return n <= 0
	})
	if n < 0 {
		g.Fatalf("%d frames too many were reaped", -n)
	}
	return failed
}
