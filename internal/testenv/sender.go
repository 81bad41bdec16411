package testenv

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// SendOptions paces SendRaw. The zero value sends as fast as it can.
type SendOptions struct {
	Rate float64 // packets per second, in the lab guest a fifth of that; 0 is no limit

	// Taken returns how many packets the receiver has taken from the wire so far. If it is set,
	// the sender is at most a thousand packets ahead, so rings of twice that size lose none,
	// however slow the machine is.
	Taken func() uint64
}

// ahead is how many packets are sent before they are taken.
const ahead = 1000

// Sender injects frames at one end through an AF_PACKET socket, exactly as
// they are: tags, checksums and padding are the caller's. It may be used from
// any one goroutine at a time.
type Sender struct {
	fd      int
	to      *End // the other end, where it is a card
	refused uint64
}

// NewSender opens a raw socket on the end. It is closed at the end of the test.
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
		// Protocol 0: the socket sends, and receives nothing.
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			t.Fatalf("open a packet socket in %s: %v", n.Name, err)
		}
	})
	return fd
}

func (e *End) bind(t testing.TB, socket int) {
	t.Helper()
	if err := unix.Bind(socket, &unix.SockaddrLinklayer{Ifindex: e.Index}); err != nil {
		t.Fatalf("bind a packet socket to %s: %v", e.Ifname, err)
	}
}

// Refused counts the frames the interface's queue had no room for. They are
// not sent again, since a capture at the sending end has seen them already.
func (s *Sender) Refused() uint64 { return s.refused }

// Send hands one frame to the interface. sent is false when its queue was
// full; anything else wrong with the frame is an error.
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
// ends early where cards take no more.
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
		if errors.Is(err, unix.EAGAIN) { // the other card has room for no more, and makes none
			return sent
		}
		if err != nil {
			t.Fatalf("send frame %d of %d bytes: %v", i, len(f), err)
		}
		if ok {
			sent++
		}
	}
	return sent
}

// arrival returns a function that waits for a moment until the other card has received that many
// packets: the wire between emulated cards loses some when it is busy. It waits only with a pace.
func (s *Sender) arrival(t testing.TB, o SendOptions) func(packets int) {
	if s.to == nil || o.Rate == 0 {
		return func(int) {}
	}
	h := s.to.handle(t)
	received := func() uint64 {
		if link := byAddress(h, s.to.MAC); link != nil { // it may have another name
			return link.Attrs().Statistics.RxPackets
		}
		return 0
	}
	before := received()
	return func(packets int) {
		within(100*time.Millisecond, func() bool { return received()-before >= uint64(packets) })
	}
}

// taking waits, for a while, until the receiver has taken what was sent, but for what
// may be ahead.
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
	gap time.Duration // from one packet to the next; 0 is no limit
	due time.Time     // when the next may leave
}

func newPace(rate float64) *pace {
	p := &pace{due: time.Now()}
	if rate > 0 {
		p.gap = time.Duration(float64(time.Second) / rate)
	}
	return p
}

// wait sleeps until the next packet is due. Who was kept from sending for long does not
// make up for it: that would be a burst of everything which was late.
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

// burst is the time which may be made up for.
const burst = 10 * time.Millisecond

// SendRaw sends the frames from the end once, in order, and returns how many
// the interface took. See Sender for what it does to them: nothing.
func SendRaw(t testing.TB, e *End, frames [][]byte, o SendOptions) (sent int) {
	t.Helper()
	return NewSender(t, e).SendAll(t, frames, o)
}
