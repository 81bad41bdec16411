package testenv

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// SendOptions paces SendRaw. The zero value sends as fast as possible.
type SendOptions struct {
	Rate float64 // packets per second, a fifth of that in the lab guest; 0: no limit

	// Taken returns how many packets the receiver has received from the wire so far. If it is set,
	// the sender is at most a thousand packets ahead. So rings of twice that size lose none,
	// however slow the machine is.
	Taken func() uint64
}

// ahead is how many packets the sender may be ahead of the receiver.
const ahead = 1000

// Sender injects frames at one end through an AF_PACKET socket, unchanged: the caller provides
// tags, checksums and padding. One goroutine at a time may use it.
type Sender struct {
	fd      int
	to      *End // the other end, if it is a card
	refused uint64
}

// NewSender opens a raw socket on the end. The end of the test closes it.
func NewSender(t testing.TB, e *End) *Sender {
	t.Helper()
	if e.card != nil && e.card.index == e.Index {
		return &Sender{fd: e.card.socket, to: e.card.other}
	}
	fd := e.packetSocket(t)
	t.Cleanup(func() { unix.Close(fd) })
	e.bind(t, fd)
	return &Sender{fd: fd}
}

// packetSocket opens a raw socket in the namespace.
func (n *Namespace) packetSocket(t testing.TB) (fd int) {
	t.Helper()
	n.Do(t, func() {
		var err error
		// Protocol 0: the socket sends and receives nothing.
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			t.Fatalf("open a packet socket in %s: %v", n.Name, err)
		}
	})
	return fd
}

func (e *End) bind(t testing.TB, socket int) {
	t.Helper()
	Mustf(t, unix.Bind(socket, &unix.SockaddrLinklayer{Ifindex: e.Index}), "bind a packet socket to %s", e.Ifname)
}

// Refused counts the frames for which the interface's queue had no room. They are not sent again,
// because a capture at the sending end has already seen them.
func (s *Sender) Refused() uint64 { return s.refused }

// Send passes one frame to the interface. sent is false if the interface's queue was full. Any
// other fault is an error.
func (s *Sender) Send(frame []byte) (sent bool, err error) {
	for {
		_, err := unix.Write(s.fd, frame)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOBUFS):
			s.refused++
			return false, nil
		default:
			return false, err
		}
	}
}

// SendAll sends the frames in order at the given pace and returns how many the interface took. It
// ends early if cards accept no more.
func (s *Sender) SendAll(t testing.TB, frames [][]byte, o SendOptions) (sent int) {
	t.Helper()
	p, arrived, taken := newPace(o.Rate/float64(slowness())), s.arrival(t, o), taking(o)
	for i, f := range frames {
		p.wait()
		if i%64 == 63 {
			arrived(sent)
			taken(sent)
		}
		ok, err := s.Send(f)
		if errors.Is(err, unix.EAGAIN) { // the other card stays full
			return sent
		}
		Mustf(t, err, "send frame %d of %d bytes", i, len(f))
		if ok {
			sent++
		}
	}
	return sent
}

// arrival returns a function that waits for a moment until the other card has received that many packets.
// The wire between emulated cards loses packets when it is busy. It waits only if there is a rate.
func (s *Sender) arrival(t testing.TB, o SendOptions) func(packets int) {
	if s.to == nil || o.Rate == 0 {
		return func(int) {}
	}
	h := s.to.handle(t)
	received := func() uint64 {
		if link := byAddress(h, s.to.MAC); link != nil { // by address, because it may have another name
			return link.Attrs().Statistics.RxPackets
		}
		return 0
	}
	before := received()
	return func(packets int) {
		within(100*time.Millisecond, func() bool { return received()-before >= uint64(packets) })
	}
}

// taking returns a function that waits, up to a limit, until the receiver is at most ahead packets behind.
func taking(o SendOptions) func(packets int) {
	if o.Taken == nil {
		return func(int) {}
	}
	before := o.Taken()
	return func(packets int) {
		within(10*time.Second, func() bool { return o.Taken()-before+ahead >= uint64(packets) })
	}
}

// pace keeps a rate. The timer is coarse, so packets leave in small bursts.
type pace struct {
	gap time.Duration // from one packet to the next; 0: no limit
	due time.Time     // when the next packet may leave
}

func newPace(rate float64) *pace {
	p := &pace{due: time.Now()}
	if rate > 0 {
		p.gap = time.Duration(float64(time.Second) / rate)
	}
	return p
}

// wait sleeps until the next packet is due. A sender that is late by more than burst does not catch
// up. That would send all late packets in one burst.
func (p *pace) wait() {
	if p.gap == 0 {
		return
	}
	if wait := time.Until(p.due); wait > 0 {
		time.Sleep(wait)
	} else if wait < -burst {
		p.due = p.due.Add(-burst - wait)
	}
	p.due = p.due.Add(p.gap)
}

// burst is the longest delay that a sender catches up.
const burst = 10 * time.Millisecond

// SendRaw sends the frames from the end once, in order, and returns how many the interface took.
// Like a Sender it does not change them.
func SendRaw(t testing.TB, e *End, frames [][]byte, o SendOptions) (sent int) {
	t.Helper()
	return NewSender(t, e).SendAll(t, frames, o)
}
