package order

import (
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// rig is a sink on one end of a network, and an exchange on the other. The test's goroutine is the worker.
type rig struct {
	t        testing.TB
	sink     *Sink
	env      *pipeline.Env
	region   *umem.Region
	frames   []umem.Frame
	free     umem.FreeList
	batch    pipeline.Batch
	exchange *exchange
	close    func()
	sent     uint64 // orders offered
	tick     uint64 // when what they answer arrived; 0: nothing
}

// options of a rig.
type options struct {
	limits  config.OrderLimits
	retry   time.Duration
	window  int // receive buffer of the exchange; 0: the default
	address netip.Addr
	name    string             // of the exchange; empty: its address
	times   string             // file for the times of orders
	untimed bool               // the kernel does not say when segments leave
	spins   bool               // the worker spins
	given   bool               // the test gives the connection: see giver
	rules   []config.OrderRule // that make the orders, of messages; the counter begins with 5
}

// newRig connects a sink at one end to an exchange at another. The interface of the sink's end is iface.
func newRig(t testing.TB, from, to *testenv.End, o options) *rig {
	t.Helper()
	runtime.LockOSThread()
	if o.retry == 0 {
		o.retry = 50 * time.Millisecond
	}
	if !o.address.IsValid() {
		o.address = to.IP
	}
	r := &rig{t: t, exchange: listen(t, to, o.address, o.window)}
	region, err := umem.Open(umem.Config{Size: 8 << 20, Pages: umem.Ordinary})
	testenv.Must(t, err)
	r.region = region
	target := r.exchange.address.String()
	if o.name != "" {
		target = net.JoinHostPort(o.name, strconv.Itoa(int(r.exchange.address.Port())))
	}
	flow := config.NewFlowOf(config.KindAttachOrder, "orders")
	flow.From.Attach = "trader"
	flow.To.Order = &config.Order{
		Connect: target, Interface: from.Ifname, ZeroCopy: config.ZeroCopyPrefer, Ring: 256, SendTimes: !o.untimed, Retry: o.retry, Limits: o.limits, Times: o.times,
	}
	if o.rules != nil {
		order := flow.To.Order
		flow = config.NewFlowOf(config.KindNetworkOrder, "orders")
		flow.From.Interface, flow.Stages, flow.To.Order = from.Ifname, []config.Stage{{Mold: &config.Feed{}}}, order
		order.Rules, order.Counter = o.rules, 5
	}
	r.env = &pipeline.Env{Flow: flow, Region: region, Log: slog.New(slog.DiscardHandler), Halt: &pipeline.Halt{}, Events: !o.spins, Do: func(f func() error) error { return f() }}
	testenv.Must(t, r.env.Open())
	from.Do(t, func() { r.sink, err = Open(r.env) })
	if err != nil {
		t.Fatal(errors.Join(err, r.env.Undo.Run()))
	}
	if o.given { // in place of a Hub, which needs a program
		r.sink.keeper.giver, r.sink.keeper.err, r.sink.replies.others = "session", errNotGiven, true
	}
	r.sink.SetFree(&r.free)
	r.frames = make([]umem.Frame, 64)
	if n := r.env.Holder.Take(r.frames); n != len(r.frames) {
		t.Fatalf("%d frames", n)
	}
	r.batch.Frames = make([]umem.Frame, pipeline.Burst)
	testenv.Must(t, r.sink.Begin())
	closed := false
	r.close = func() {
		if closed {
			return
		}
		closed = true
		testenv.Check(t, errors.Join(r.sink.Close(), r.env.Undo.Run(), region.Close()))
	}
	t.Cleanup(r.close)
	if !o.given {
		r.await("a connection", func() bool { return r.sink.conn != nil })
	}
	return r
}

// round is one round of the worker.
func (r *rig) round() {
	now := time.Now()
	r.sink.Reap(now)
	r.sink.Write(&r.batch, now)
	r.sink.Flush(true, now)
	r.sink.Kick()
	r.env.Book.Publish()
}

// await makes rounds until something is so.
func (r *rig) await(what string, is func() bool) {
	r.t.Helper()
	for end := time.Now().Add(testenv.Within(60 * time.Second)); !is(); r.round() {
		if time.Now().After(end) {
			r.t.Fatalf("no %s: %+v; %v", what, *r.status().Orders, r.sink.keeper.waitsFor())
		}
	}
}

// put adds an order to the batch, for which there must be room.
func (r *rig) put(payload []byte) {
	f := r.frames[r.sent%uint64(len(r.frames))]
	f.Addr, f.Len = f.Addr+64, uint32(len(payload))
	copy(r.region.Bytes(f), payload)
	now := uint64(time.Now().UnixNano())
	*r.region.Side(f) = umem.Side{Stamp: now, Token: r.tick, Block: now}
	r.batch.Frames[r.batch.Len] = f
	r.batch.Len++
	r.sent++
}

// send sends one order, and returns what became of it.
func (r *rig) send(payload []byte) wire.Reason {
	r.t.Helper()
	r.put(payload)
	before := r.sink.taken
	now := time.Now()
	r.sink.Write(&r.batch, now)
	for end := now.Add(testenv.Within(60 * time.Second)); r.sink.taken == before; r.round() {
		if time.Now().After(end) {
			r.t.Fatalf("an order waits for ever: %+v", *r.status().Orders)
		}
	}
	r.sink.Kick()
	r.free.Drop(r.free.Len(), r.free.Len())
	return r.sink.Outcome(before)
}

func (r *rig) status() *status.Flow {
	s := &status.Flow{CopiedBytes: map[string]uint64{}, KernelBytes: map[string]uint64{}, Dropped: map[string]uint64{}}
	testenv.Check(r.t, r.sink.Observe(s))
	return s
}

// total adds up counts by reason.
func total(counts map[string]uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// exchange accepts connections, and checks the stream of each: numbered orders whose bytes follow from the number.
type exchange struct {
	t        testing.TB
	listener net.Listener
	address  netip.AddrPort
	conns    chan *net.TCPConn
}

// listen opens the exchange's port.
func listen(t testing.TB, at *testenv.End, address netip.Addr, window int) *exchange {
	t.Helper()
	return listenAt(t, at, netip.AddrPortFrom(address, 0), window)
}

// listenAt is listen with a port.
func listenAt(t testing.TB, at *testenv.End, address netip.AddrPort, window int) *exchange {
	t.Helper()
	x := &exchange{t: t, conns: make(chan *net.TCPConn, 16)}
	at.Do(t, func() {
		var l *net.TCPListener
		testenv.Wait(t, 5*time.Second, "the address of the exchange", func() (ok bool) { // of IPv6, which takes a moment
			var err error
			l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(address))
			return err == nil
		})
		if window > 0 {
			raw, err := l.SyscallConn()
			testenv.Must(t, err)
			testenv.Must(t, raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, window) }))
		}
		x.listener, x.address = l, l.Addr().(*net.TCPAddr).AddrPort()
	})
	t.Cleanup(func() { x.listener.Close() })
	go func() {
		for {
			c, err := x.listener.Accept()
			if err != nil {
				return
			}
			x.conns <- c.(*net.TCPConn)
		}
	}()
	return x
}

// accept returns the next connection.
func (x *exchange) accept() *net.TCPConn {
	x.t.Helper()
	select {
	case c := <-x.conns:
		x.t.Cleanup(func() { c.Close() })
		return c
	case <-time.After(testenv.Within(20 * time.Second)):
		x.t.Fatal("nobody connects")
		return nil
	}
}

// orderOf writes order n, whose length follows from n.
func orderOf(b []byte, n uint64, longest int) []byte {
	b = b[:9+int((n*2654435761)>>7)%(longest-8)]
	binary.BigEndian.PutUint64(b, n)
	for i := 8; i < len(b); i++ {
		b[i] = byte(n>>3) + byte(i*7)
	}
	return b
}

// reader checks a stream of orders.
type reader struct {
	orders atomic.Uint64 // whole orders that were right
	err    chan error    // why it ended
}

// read checks what comes over a connection. pause is called before each read.
func read(c net.Conn, longest int, pause func()) *reader {
	r := &reader{err: make(chan error, 1)}
	go func() {
		r.err <- r.run(c, longest, pause)
	}()
	return r
}

func (r *reader) run(c net.Conn, longest int, pause func()) error {
	var b [64 << 10]byte
	want := make([]byte, longest+16)
	rest := want[:0]
	for n := uint64(0); ; {
		if pause != nil {
			pause()
		}
		k, err := c.Read(b[:])
		for got := b[:k]; len(got) > 0; {
			if len(rest) == 0 {
				rest = orderOf(want[:cap(want)], n, longest)
			}
			m := min(len(rest), len(got))
			if string(rest[:m]) != string(got[:m]) {
				return errors.New("the stream is not what was sent")
			}
			rest, got = rest[m:], got[m:]
			if len(rest) == 0 {
				n++
				r.orders.Store(n)
			}
		}
		if err == io.EOF {
			if len(rest) > 0 {
				return errors.New("the stream ends within an order")
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
}
