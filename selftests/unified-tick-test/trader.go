package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/selftests/harness"
)

// trader answers ticks on one thread, with sockets of the kernel: the plain program with which others are compared. Ticks
// may also come from a daemon, and orders may leave through one.
type trader struct {
	o       *options
	lines   []tickLine
	client  *attached.Client // nil: it is not attached to a daemon
	program *program         // instead of lines, if a flow gives ticks
	stream  stream
	out     session
	set     []unix.PollFd // of the connection and of the lines
	latest  uint64        // tick that was answered
	stamp   uint64        // of the packet that was taken last, if a daemon gave it
	ticks   uint64
	repeats uint64 // ticks that were answered already, or are older
	refused uint64 // packets that are no ticks
	cleanup harness.Cleanup
}

// session is the trader's end of the connection for orders.
type session interface {
	// order returns the order that answers a tick.
	order(t *tick) []byte
	// receive takes what the exchange says. It returns errClosed at the end.
	receive() error
	// idle returns what is due while nothing happens, or nil.
	idle(now time.Time) []byte
	// replies returns how many orders the exchange has accepted.
	replies() uint64
}

// answered is what the trader prints.
type answered struct {
	Command  string  `json:"command"`
	Protocol string  `json:"protocol"`
	Wait     string  `json:"wait"`
	Ticks    uint64  `json:"ticks"`
	Repeats  uint64  `json:"repeats"`
	Refused  uint64  `json:"refused_packets"`
	Orders   uint64  `json:"orders"`
	Replies  uint64  `json:"replies"`
	User     float64 `json:"user_ns_per_order"`
	System   float64 `json:"system_ns_per_order"`
}

// answer is the command trader.
func answer(ctx context.Context, o options, stdout, stderr io.Writer) (err error) {
	t := &trader{o: &o}
	defer func() { err = errors.Join(err, t.cleanup.Close()) }()
	if err := t.open(ctx); err != nil {
		return err
	}
	fmt.Fprintln(stderr, "answering ticks")
	before := harness.ReadClocks()
	if err := t.run(ctx); !errors.Is(err, errClosed) {
		return err
	}
	for i := range t.lines {
		t.refused += t.lines[i].empty
	}
	r := answered{Command: o.command.Name, Protocol: o.protocol, Wait: o.wait, Ticks: t.ticks, Repeats: t.repeats, Refused: t.refused, Orders: t.ticks - t.repeats, Replies: t.out.replies()}
	r.User, r.System = harness.ReadClocks().PerOperation(before, max(1, float64(r.Orders)))
	if o.json {
		return harness.PrintJSON(stdout, r)
	}
	_, err = fmt.Fprintf(stdout, "%d ticks, %d of them again; %d orders, %d accepted; %d packets were no ticks; processor time of an order %.0f ns (user %.0f, system %.0f)\n",
		r.Ticks, r.Repeats, r.Orders, r.Replies, r.Refused, r.User+r.System, r.User, r.System)
	return err
}

// open opens the lines, and then the connection: the exchange sends ticks when it has that.
func (t *trader) open(ctx context.Context) error {
	t.set = append(t.set, unix.PollFd{Fd: -1, Events: unix.POLLIN})
	if err := t.openTicks(); err != nil {
		return err
	}
	if err := t.openStream(ctx); err != nil {
		return err
	}
	if t.o.protocol == plain {
		t.out = &plainSession{stream: t.stream, packet: make([]byte, tickLen)}
		return nil
	}
	s := newOuchSession(t.stream)
	t.out = s
	first, err := s.login()
	if err == nil {
		err = t.stream.send(ctx, first, 0)
	}
	for limit := time.Now().Add(t.o.timeout); err == nil && !s.ready; err = s.receive() {
		if time.Now().After(limit) {
			return fmt.Errorf("the exchange has not answered the login within %v", t.o.timeout)
		}
		wait(t.set[:1], time.Millisecond)
	}
	return err
}

// openTicks attaches to a daemon, if the trader needs one, and opens what ticks come from.
func (t *trader) openTicks() (err error) {
	if t.o.flow != "" || t.o.send != "" {
		if t.client, err = attached.Attach(attached.Config{Socket: t.o.socket, Name: t.o.as}); err != nil {
			return err
		}
		t.cleanup.Then(t.client.Close)
	}
	if t.o.flow != "" {
		if t.program, err = receiveFrom(t.client, t.o.flow); err != nil {
			return err
		}
		t.cleanup.Then(t.program.close)
	}
	for _, on := range t.o.ticks {
		fd, err := listenTicks(on, t.o.iface)
		if err != nil {
			return err
		}
		t.cleanup.Then(func() error { return unix.Close(fd) })
		t.lines = append(t.lines, tickLine{fd: fd})
		t.set = append(t.set, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	return nil
}

// openStream connects to the exchange, or opens the flow of a daemon that does.
func (t *trader) openStream(ctx context.Context) error {
	if t.o.send != "" {
		s, err := openFlow(t.client, t.o.send)
		if err != nil {
			return err
		}
		t.cleanup.Then(s.close)
		t.stream = s
		return nil
	}
	c, err := t.connect(ctx)
	if err != nil {
		return err
	}
	t.cleanup.Then(c.file.Close)
	t.set[0].Fd, t.stream = int32(c.fd), kernelStream{c.fd}
	return nil
}

// connect connects to the exchange. It may not be there yet.
func (t *trader) connect(ctx context.Context) (*connection, error) {
	at := t.o.orders[0].String()
	for limit := time.Now().Add(t.o.timeout); ; {
		c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", at)
		if err == nil {
			return newConnection(c.(*net.TCPConn))
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if time.Now().After(limit) {
			return nil, fmt.Errorf("connect to the exchange: %w", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// looks is how often a spinning trader looks for ticks until it looks at the connection.
const looks = 256

// run answers ticks until the exchange closes the connection.
func (t *trader) run(ctx context.Context) error {
	for turn := 0; ; turn++ {
		packet, err := t.next()
		if err != nil {
			return err
		}
		if packet != nil {
			if err := t.read(ctx, packet); err != nil {
				return err
			}
			continue
		}
		if sleeps := t.o.wait == sleep; sleeps || turn%looks == 0 {
			if err := t.beside(ctx); err != nil {
				return err
			}
			if sleeps {
				err = t.wait(ctx)
			}
			if err != nil {
				return err
			}
		}
	}
}

// wait waits until there is something to do, for some time.
func (t *trader) wait(ctx context.Context) error {
	if t.program != nil {
		return t.program.wait(ctx)
	}
	wait(t.set, 100*time.Millisecond)
	return nil
}

// next returns the next packet, or nil. Of several lines it is the one with the lowest sequence number. The exchange
// sends a tick on all lines before the next one, so what another line lacks when it is looked at again is not on its way.
func (t *trader) next() ([]byte, error) {
	if t.program != nil {
		packet, stamp, err := t.program.next()
		t.stamp = stamp
		return packet, err
	}
	if len(t.lines) == 1 {
		_, err := t.lines[0].fill()
		return t.lines[0].take(), err
	}
	for some, looks := false, 0; looks < 2; looks++ {
		for i := range t.lines {
			got, err := t.lines[i].fill()
			if err != nil {
				return nil, err
			}
			some = some || got
		}
		if !some {
			break
		}
	}
	first := &t.lines[0]
	for i := range t.lines {
		if l := &t.lines[i]; l.have > 0 && (first.have == 0 || l.sequence(t.o.mold) < first.sequence(t.o.mold)) {
			first = l
		}
	}
	return first.take(), nil
}

// tickLine is a line of the trader, with a packet that was not read yet.
type tickLine struct {
	fd     int
	packet [2048]byte
	have   int // bytes of it
	empty  uint64
}

// fill receives a packet, if there is none yet.
func (l *tickLine) fill() (got bool, err error) {
	if l.have > 0 {
		return false, nil
	}
	n, _, errno := receive(l.fd, l.packet[:], nil, 0)
	if errno != 0 && errno != unix.EAGAIN && errno != unix.EINTR {
		return false, fmt.Errorf("receive ticks: %w", errno)
	}
	if l.have = n; n == 0 && errno == 0 {
		l.empty++
	}
	return n > 0, nil
}

// take returns the packet, or nil. It is valid until the next call of fill.
func (l *tickLine) take() []byte {
	if l.have == 0 {
		return nil
	}
	n := l.have
	l.have = 0
	return l.packet[:n]
}

// sequence returns the sequence number of the packet; 0: it is too short for one.
func (l *tickLine) sequence(mold bool) uint64 {
	at := 8
	if mold {
		at = 10
	}
	if l.have < at+8 {
		return 0
	}
	return binary.BigEndian.Uint64(l.packet[at:])
}

// beside does what can wait.
func (t *trader) beside(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := t.out.receive(); err != nil {
		return err
	}
	if b := t.out.idle(time.Now()); b != nil {
		return t.stream.send(ctx, b, 0)
	}
	return nil
}

// read answers the ticks of a packet.
func (t *trader) read(ctx context.Context, packet []byte) (err error) {
	if !t.o.mold {
		return t.tick(ctx, packet)
	}
	var failed error
	if moldMessages(packet, func(b []byte) error {
		failed = t.tick(ctx, b)
		return failed
	}) != nil && failed == nil {
		t.refused++
	}
	return failed
}

// tick answers a tick, if it is not answered yet.
func (t *trader) tick(ctx context.Context, b []byte) error {
	var one tick
	if one.read(b, isTick) != nil {
		t.refused++
		return nil
	}
	t.ticks++
	if one.sequence <= t.latest {
		t.repeats++
		return nil
	}
	t.latest = one.sequence
	return t.stream.send(ctx, t.out.order(&one), t.stamp)
}
