package order

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/internal/tcpsend"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// capture says when orders arrived at an interface.
type capture struct {
	fd   int
	done chan error
	seen []int64 // nanoseconds since 1970, by the number of the order; 0: not yet
}

// watch begins to capture the first copies of orders at an interface, with the kernel's time of arrival.
func watch(t testing.TB, at *testenv.End, orders int) *capture {
	t.Helper()
	c := &capture{done: make(chan error, 1), seen: make([]int64, orders)}
	all := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL))
	at.Do(t, func() {
		var err error
		if c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err == nil {
			err = errors.Join(unix.SetsockoptInt(c.fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1), unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
				unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20), unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 200000}),
				unix.Bind(c.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: at.Index}))
		}
		testenv.Must(t, err)
	})
	awaitStamps(t)
	go func() { c.done <- c.run() }()
	return c
}

// awaitStamps waits until the kernel takes the time when a packet arrives. It begins to when a socket asks for that, but
// not at once: meanwhile it gives the time at which the packet is read.
func awaitStamps(t testing.TB) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	testenv.Must(t, err)
	defer unix.Close(fd)
	err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPING, unix.SOF_TIMESTAMPING_RX_SOFTWARE|unix.SOF_TIMESTAMPING_SOFTWARE),
		unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	testenv.Must(t, err)
	self, err := unix.Getsockname(fd)
	testenv.Must(t, err)
	var b [1]byte
	var oob [128]byte
	testenv.Wait(t, 20*time.Second, "stamps of the kernel", func() bool {
		testenv.Must(t, unix.Sendto(fd, b[:], 0, self))
		_, k, _, _, err := unix.Recvmsg(fd, b[:], oob[:], 0)
		return err == nil && k > 0
	})
}

// run ends when nothing has come for a while and end was called.
func (c *capture) run() error {
	var b [2048]byte
	var oob [128]byte
	for idle := 0; idle < 5; {
		n, k, _, _, err := unix.Recvmsg(c.fd, b[:], oob[:], 0)
		if err == unix.EAGAIN || err == unix.EINTR {
			idle++
			continue
		}
		if err != nil {
			return err
		}
		const payload = 14 + 20 + 32
		if n < payload+8 || binary.BigEndian.Uint16(b[12:]) != unix.ETH_P_IP || b[23] != unix.IPPROTO_TCP {
			continue
		}
		number := binary.BigEndian.Uint64(b[payload:])
		messages, err := unix.ParseSocketControlMessage(oob[:k])
		if err != nil {
			return err
		}
		if number >= uint64(len(c.seen)) || c.seen[number] != 0 || len(messages) == 0 {
			continue
		}
		idle = 0
		c.seen[number] = int64(binary.NativeEndian.Uint64(messages[0].Data))*1e9 + int64(binary.NativeEndian.Uint64(messages[0].Data[8:]))
	}
	return nil
}

// end returns when all orders have arrived, or nothing comes any more.
func (c *capture) end(t testing.TB) []int64 {
	t.Helper()
	testenv.Must(t, errors.Join(<-c.done, unix.Close(c.fd)))
	return c.seen
}

// BenchmarkWire measures the time from the decision to send an order until the segment is at the other end of a veth
// pair, and until the worker can go on. The orders come one by one.
//
//	go test ./flows/sink/order -run '^$' -bench Wire -benchtime 5000x
func BenchmarkWire(b *testing.B) {
	for _, c := range []struct {
		name  string
		plain bool
		send  func(r *rig, payload []byte) wire.Reason
	}{
		{name: "kernel", plain: true, send: (*rig).send},
		{name: "segment", send: (*rig).send},
		{name: "kernel, then segment", send: (*rig).sendBehind}, // which was tried, and is no better than the kernel alone
	} {
		b.Run(c.name, func(b *testing.B) {
			p := testenv.NewPair(b, testenv.PairOptions{})
			r := newRig(b, &p.A, &p.B, options{})
			got := read(r.exchange.accept(), 64, nil)
			var order [64]byte
			const warm = 300
			seen := watch(b, &p.B, warm+b.N)
			var left, back []int64
			for n := range uint64(warm + b.N) {
				if c.plain {
					r.sink.conn.SetPath(nil)
				}
				payload := orderOf(order[:], n, 64)
				for end := time.Now().Add(150 * time.Microsecond); time.Now().Before(end); {
					r.round()
				}
				begun := time.Now()
				if why := c.send(r, payload); why != wire.None {
					b.Fatal(why)
				}
				left, back = append(left, begun.UnixNano()), append(back, int64(time.Since(begun)))
			}
			r.await("whole stream", func() bool { return got.orders.Load() == uint64(warm+b.N) || len(got.err) > 0 })
			arrived := seen.end(b)
			var times []int64
			lost := 0
			for n := warm; n < len(arrived); n++ {
				if arrived[n] == 0 {
					lost++
					continue
				}
				times = append(times, arrived[n]-left[n])
			}
			back = back[warm:]
			slices.Sort(times)
			slices.Sort(back)
			at := func(all []int64, part float64) float64 { return float64(all[int(float64(len(all)-1)*part)]) / 1e3 }
			b.ReportMetric(at(times, 0.5), "wire-p50-µs")
			b.ReportMetric(at(times, 0.99), "wire-p99-µs")
			b.ReportMetric(at(back, 0.5), "call-p50-µs")
			b.ReportMetric(at(back, 0.99), "call-p99-µs")
			b.ReportMetric(0, "ns/op")
			s := r.status().Orders
			b.Logf("%d unseen; %d segments, kernel %v, waits %v, %d early, %d sent again, round trip %.0f µs", lost, s.Segments, s.Kernel, s.Waits, s.Early, s.Retransmitted, s.RoundTrip*1e6)
			if lost > 0 {
				b.Errorf("%d orders were not seen at the other end", lost)
			}
		})
	}
}

// sendBehind sends one order in a segment that leaves when the kernel has the order.
func (r *rig) sendBehind(payload []byte) wire.Reason {
	s := r.sink
	if s.conn.Guard(len(payload)) != tcpsend.None {
		return r.send(payload)
	}
	var one [1]umem.Frame
	s.own.Pop(one[:])
	b := r.region.At(one[0].Addr, tcpsend.Headroom+uint64(len(payload)))
	copy(b[tcpsend.Headroom:], payload)
	start := s.conn.Build(b, time.Now())
	if !s.conn.Book(payload) || !s.transmit(umem.Frame{Addr: one[0].Addr + uint64(start), Len: uint32(len(b) - start)}) {
		return wire.NotDone
	}
	s.count.sent.Add(1)
	return wire.None
}

// TestStopAtThePeer: with the kill switch on, no byte of an order that had not left before arrives at the exchange's
// interface, though orders are offered at full load.
func TestStopAtThePeer(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	r := newRig(t, &p.A, &p.B, options{})
	got := read(r.exchange.accept(), 64, nil)
	const most = 1 << 16
	seen := watch(t, &p.B, most)
	var b [64]byte
	n := uint64(0)
	stop := time.AfterFunc(100*time.Millisecond, r.env.Halt.Stop)
	defer stop.Stop()
	for n < most && r.send(orderOf(b[:], n, 64)) == wire.None {
		n++
	}
	answered := time.Now().UnixNano() // the sink has seen the switch
	if n == 0 || n == most {
		t.Fatalf("%d orders left", n)
	}
	held := 0
	for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); held++ {
		if why := r.send(orderOf(b[:], n+uint64(held), 64)); why != wire.Stopped {
			t.Fatal(why)
		}
	}
	arrived := seen.end(t)
	for i, at := range arrived {
		if uint64(i) >= n && at != 0 || at > answered+int64(testenv.Within(time.Millisecond)) {
			t.Errorf("order %d of %d arrived %v after the answer", i, n, time.Duration(at-answered))
		}
	}
	r.await("stream", func() bool { return got.orders.Load() == n })
	t.Logf("%d orders left, %d held", n, held)
}
