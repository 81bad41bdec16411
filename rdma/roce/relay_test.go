package roce

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// fault is what a relay does to a packet.
type fault int

const (
	lose fault = iota
	double
	delay // behind the next ones
	flip  // a bit
	cut
	haunt // an ACK is followed by a false one, for packets that were never sent
	kinds
)

var faultNames = [kinds]string{"lost", "duplicated", "reordered", "corrupted", "truncated", "ghosts"}

// relay is a bad network between two interfaces: it carries frames from each to the other, and
// applies random faults to RoCE packets.
type relay struct {
	testing.TB
	rates   [kinds]atomic.Uint64 // of each, in ten thousand
	did     [kinds]atomic.Uint64
	carried atomic.Uint64
	stop    atomic.Bool
	look    atomic.Pointer[func(forward bool, frame []byte, e *wire.Envelope)] // sees each RoCE packet first, and may change it
}

// way is one direction of a relay.
type way struct {
	*relay
	from, to int
	forward  bool // from the first interface to the second
	rnd      *rand.Rand
	held     [][]byte
	behind   int // packets until the held ones go
}

// newRelay joins the two interfaces until the test ends.
func newRelay(t testing.TB, seed uint64, a, b *testenv.End) *relay {
	r := &relay{TB: t}
	fds := [2]int{tap(t, a), tap(t, b)}
	var ways sync.WaitGroup
	for i := range fds {
		w := &way{relay: r, from: fds[i], to: fds[1-i], forward: i == 0, rnd: rand.New(rand.NewPCG(seed, uint64(i)))}
		ways.Go(w.run)
	}
	t.Cleanup(func() {
		r.stop.Store(true)
		ways.Wait()
		for _, fd := range fds {
			unix.Close(fd)
		}
	})
	return r
}

// tap opens a socket that receives all packets of an interface, and sends frames unchanged.
func tap(t testing.TB, e *testenv.End) (fd int) {
	all := int(unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8)
	e.Do(t, func() {
		var err error
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
		if err == nil {
			err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
				unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20),
				unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 2000}),
				unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: uint16(all), Ifindex: e.Index}))
		}
		testenv.Must(t, err)
	})
	return fd
}

func (w *way) run() {
	var b [9100]byte
	for !w.stop.Load() {
		n, err := unix.Read(w.from, b[:])
		switch {
		case err == nil:
			w.carry(b[:n])
		case errors.Is(err, unix.EAGAIN):
			w.release()
		case !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ENETDOWN):
			w.Error(err)
			return
		}
	}
}

// happens draws whether a fault happens, and counts it.
func (w *way) happens(f fault) bool {
	if w.rnd.Uint64N(10000) >= w.rates[f].Load() {
		return false
	}
	w.did[f].Add(1)
	return true
}

func (w *way) carry(frame []byte) {
	var e wire.Envelope
	if e.Parse(frame, len(frame)) != wire.WellFormed {
		w.send(frame)
		return
	}
	w.carried.Add(1)
	if look := w.look.Load(); look != nil {
		(*look)(w.forward, frame, &e)
	}
	if w.happens(lose) {
		return
	}
	w.put(frame)
	if w.happens(double) {
		w.hold(frame)
	}
	var h wire.Header
	if _, why := h.Decode(frame[e.Transport:]); why == wire.WellFormed && h.Opcode == wire.RCAcknowledge && w.happens(haunt) {
		w.put(w.ghost(frame, &e, &h))
	}
	if w.behind--; w.behind <= 0 {
		w.release()
	}
}

// put sends a packet, part of it, or a changed one.
func (w *way) put(frame []byte) {
	own := append([]byte(nil), frame...)
	if w.happens(flip) {
		own[14+w.rnd.IntN(len(own)-14)] ^= 1 << w.rnd.IntN(8)
	}
	if w.happens(cut) {
		own = own[:15+w.rnd.IntN(len(own)-15)]
	}
	if w.happens(delay) {
		w.hold(own)
		return
	}
	w.send(own)
}

func (w *way) hold(frame []byte) {
	w.held = append(w.held, append([]byte(nil), frame...))
	w.behind = 1 + w.rnd.IntN(4)
}

func (w *way) release() {
	for _, frame := range w.held {
		w.send(frame)
	}
	w.held = w.held[:0]
}

// ghost turns an ACK into a false one, whose packet number is far from any that the peer expects.
func (w *way) ghost(frame []byte, e *wire.Envelope, h *wire.Header) []byte {
	own := append([]byte(nil), frame...)
	h.PSN = h.PSN.Add([2]int{-1000, 1000}[w.rnd.IntN(2)] * (1 + w.rnd.IntN(1000)))
	h.Syndrome = []wire.Syndrome{wire.ACK, wire.NAKSequence, wire.NAKRemoteAccess, wire.NAKInvalidRequest, wire.RNRNAK(1)}[w.rnd.IntN(5)]
	n := e.Transport + h.Encode(own[e.Transport:])
	wire.Begin(own[e.Network:n]).Finish(own[n:], 0)
	return own
}

// send writes a frame. If there is no room for it, the frame is lost.
func (w *way) send(frame []byte) {
	if _, err := unix.Write(w.to, frame); err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.ENETDOWN) {
		w.Error(fmt.Errorf("%d bytes: %w", len(frame), err))
	}
}

// setRates draws how likely each fault is: not at all, or 0.1 to 10 %.
func (r *relay) setRates(rnd *rand.Rand) {
	for kind := range kinds {
		r.rates[kind].Store([]uint64{0, 10, 100, 300, 1000}[rnd.IntN(5)])
	}
}

// newBadRig makes two devices with a bad network between them.
func newBadRig(t testing.TB, seed uint64, o rigOptions) (*rig, *relay) {
	testenv.Root(t)
	apart := testenv.PairOptions{MTU: o.mtu, NoAddresses: true}
	near, far := testenv.NewPair(t, apart), testenv.NewPair(t, apart)
	pair := &testenv.Pair{A: near.A, B: far.B, MTU: near.MTU, Queues: near.Queues}
	for _, e := range []*testenv.End{&pair.A, &pair.B} {
		e.Run(t, "ip", "address", "add", e.IP.String()+"/24", "dev", e.Ifname)
	}
	r := newRelay(t, seed, &near.B, &far.A)
	return newRigOn(t, pair, o), r
}

// close closes the end's queues before the test ends.
func (e *end) close() {
	e.must(e.qp.Close())
	e.must(e.cq.Close())
}
