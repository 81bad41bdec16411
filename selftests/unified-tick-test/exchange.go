package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/selftests/harness"
)

// exchange sends ticks and receives orders, on one thread.
type exchange struct {
	o       *options
	lines   []*line
	orders  *orders
	cleanup harness.Cleanup
	all     uint64 // ticks, with those that are not measured

	ticks    []moment // by sequence number; the first one is not used
	next     uint64   // tick to send
	answered uint64
	latest   uint64 // tick that was answered
	dropped  uint64 // ticks that no line had
	begun    time.Time
	moved    time.Time // when a tick was sent or an order came
	stalled  time.Time // until when no order is read
	packet   []byte
	set      [2]unix.PollFd // orders, and a timer
	stamp    func(tick uint32, at int64)
}

// moment has the times of a tick and of its order, in nanoseconds since 1970; 0: there is none.
type moment struct {
	out, in             int64 // by the program's clock
	outKernel, inKernel int64 // by the kernel's
}

// giveUp is how long the exchange waits for an order, if nothing else happens.
const giveUp = time.Second

// trade is the command exchange.
func trade(ctx context.Context, o options, stdout, stderr io.Writer) (err error) {
	x := &exchange{o: &o, all: o.warm + o.count, next: 1}
	defer func() { err = errors.Join(err, x.cleanup.Close()) }()
	if err := x.open(ctx, stderr); err != nil {
		return err
	}
	if o.stamps == kernel {
		if err := awaitStamps(); err != nil {
			return err
		}
	}
	before := harness.ReadClocks()
	if err := x.run(ctx); err != nil {
		return err
	}
	after := harness.ReadClocks()
	if err := x.finish(ctx); err != nil {
		return err
	}
	r := x.result(after.At.Sub(before.At).Seconds())
	if err := r.print(stdout, o.json); err != nil {
		return err
	}
	return r.judge()
}

// open opens the lines, and waits for the trader.
func (x *exchange) open(ctx context.Context, stderr io.Writer) error {
	for i, to := range x.o.ticks {
		l, err := openLine(to, i, x.o)
		if err != nil {
			return err
		}
		x.cleanup.Then(func() error { return unix.Close(l.fd) })
		x.lines = append(x.lines, l)
	}
	timer, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("make a timer: %w", err)
	}
	x.cleanup.Then(func() error { return unix.Close(timer) })
	x.set[1] = unix.PollFd{Fd: int32(timer), Events: unix.POLLIN}
	x.ticks = make([]moment, x.all+1)
	for i := range x.ticks {
		x.ticks[i] = moment{} // the kernel gives the memory now, and not while times are measured
	}
	x.packet = make([]byte, moldLen+x.o.size)
	x.stamp = x.stampTick
	if x.o.echo {
		fd := x.lines[0].fd
		x.orders, x.set[0] = newOrders(fd, x.o), unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
		return x.knock(ctx)
	}
	c, err := x.accept(ctx, stderr)
	if err != nil {
		return err
	}
	x.cleanup.Then(c.file.Close)
	if x.o.stamps == kernel {
		if err := stampReceived(c.fd); err != nil {
			return fmt.Errorf("have the kernel stamp orders: %w (-stamps own does without)", err)
		}
	}
	x.orders = newOrders(c.fd, x.o)
	x.set[0] = unix.PollFd{Fd: int32(c.fd), Events: unix.POLLIN}
	return x.meet(ctx)
}

// accept waits for the trader's connection.
func (x *exchange) accept(ctx context.Context, stderr io.Writer) (*connection, error) {
	at := x.o.orders[0]
	l, err := listenOrders(ctx, at, x.o.window)
	if err != nil {
		return nil, fmt.Errorf("wait for a trader: %w", err)
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	fmt.Fprintf(stderr, "waiting for a trader at %s\n", at)
	if err := l.SetDeadline(time.Now().Add(x.o.timeout)); err != nil {
		return nil, err
	}
	c, err := l.AcceptTCP()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, fmt.Errorf("no trader has connected to %s within %v", at, x.o.timeout)
	}
	if err != nil {
		return nil, fmt.Errorf("wait for a trader: %w", err)
	}
	return newConnection(c)
}

// meet waits until the trader has logged in, if it must, and until it is time for ticks.
func (x *exchange) meet(ctx context.Context) error {
	for limit := time.Now().Add(x.o.timeout); !x.orders.ready; {
		if time.Now().After(limit) {
			return fmt.Errorf("the trader has not logged in within %v", x.o.timeout)
		}
		if err := x.look(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	for start := time.Now().Add(x.o.after); time.Now().Before(start); {
		if err := x.look(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// knock sends a tick that nobody counts, until it comes back.
func (x *exchange) knock(ctx context.Context) error {
	var b [tickLen]byte
	come := false
	for limit := time.Now().Add(x.o.timeout); ; {
		n, _, errno := receive(x.lines[0].fd, b[:], nil, 0)
		switch {
		case errno == 0:
			come = come || n == tickLen && b[0] == isOrder
			continue
		case come: // and nothing more waits
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case time.Now().After(limit):
			return fmt.Errorf("nothing comes back from %s within %v", x.lines[0].to, x.o.timeout)
		}
		if err := x.lines[0].send(x.make(0), 0); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// look takes what has come, without ticks. If nothing has, it waits.
func (x *exchange) look(ctx context.Context, limit time.Duration) error {
	o, err := x.orders.receive()
	switch {
	case err != nil:
		return err
	case o.sequence > 0:
		return x.take(o)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	wait(x.set[:1], limit)
	return x.orders.idle(time.Now())
}

// run sends all ticks, and receives orders until all are there, or none comes any more. A tick that is due goes before an
// order is taken, so that a trader who is late does not slow down the feed.
func (x *exchange) run(ctx context.Context) error {
	x.begun, x.moved = time.Now(), time.Now()
	for turn := uint64(0); ; turn++ {
		if x.o.end > 0 && x.answered >= x.o.end {
			return nil
		}
		now := time.Now()
		due, some := x.due(now)
		if some && due <= 0 {
			if err := x.sendDue(now); err != nil {
				return err
			}
			x.moved = now
			now = time.Now()
			due, some = x.due(now)
		}
		got, err := x.takeSome(now)
		switch {
		case err != nil:
			return err
		case got:
			x.moved = x.later(now)
		case some && due <= 0:
		case !some && (!x.waiting() || now.Sub(x.moved) > giveUp):
			return nil
		default:
			if err := x.rest(ctx, turn, now, due); err != nil {
				return err
			}
		}
	}
}

// later returns the later one of now and the end of a stall.
func (x *exchange) later(now time.Time) time.Time {
	if x.stalled.After(now) {
		return x.stalled
	}
	return now
}

// takeSome takes the orders that have come, but no more than two for each tick of a burst: then it is time to look at the
// clock. During a stall it takes none.
func (x *exchange) takeSome(now time.Time) (some bool, err error) {
	if now.Before(x.stalled) {
		return false, nil
	}
	for range 2 * x.o.burst {
		o, err := x.orders.receive()
		if err != nil || o.sequence == 0 {
			return some, err
		}
		if err := x.take(o); err != nil {
			return some, err
		}
		some = true
		if x.o.every > 0 && x.answered%x.o.every == 0 {
			x.stalled = now.Add(x.o.stall)
			return true, nil
		}
	}
	return some, nil
}

// rest does what can wait, and then waits.
func (x *exchange) rest(ctx context.Context, turn uint64, now time.Time, due time.Duration) error {
	for _, l := range x.lines {
		l.stamps(1, x.stamp)
	}
	if turn%1024 == 0 || x.o.wait == sleep {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := x.orders.idle(now); err != nil {
			return err
		}
	}
	if x.o.wait == sleep {
		set := x.set[:1]
		if now.Before(x.stalled) {
			set = nil
		}
		wait(set, min(due, 10*time.Millisecond))
	}
	return nil
}

// sendDue sends the ticks that are due. With -wait sleep it then waits until an order comes, or the next ticks are due: at
// once, since the trader may need the processor, and no order can be there yet. To go to sleep takes longest when a timer
// has to be set, so that is set before.
func (x *exchange) sendDue(now time.Time) error {
	if x.o.wait != sleep || now.Before(x.stalled) {
		return x.burst()
	}
	next := giveUp
	if x.o.rate > 0 {
		next = x.begun.Add(time.Duration(float64(x.next-1+x.o.burst) / x.o.rate * 1e9)).Sub(now)
	}
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(max(1, int64(next)))}
	if err := unix.TimerfdSettime(int(x.set[1].Fd), 0, &at, nil); err != nil {
		return fmt.Errorf("set a timer: %w", err)
	}
	if err := x.burst(); err != nil {
		return err
	}
	wait(x.set[:], -1)
	return nil
}

// due returns how long it is until the next ticks go; false: there are no more.
func (x *exchange) due(now time.Time) (time.Duration, bool) {
	switch {
	case x.next > x.all:
		return 10 * time.Millisecond, false
	case x.o.rate > 0:
		return time.Duration(float64(x.next-1)/x.o.rate*1e9) - now.Sub(x.begun), true
	case x.waiting():
		return giveUp - now.Sub(x.moved), true
	}
	return 0, true
}

// waiting reports whether a tick was sent that may still be answered: one behind the last that was.
func (x *exchange) waiting() bool {
	for i := x.next - 1; i > x.latest; i-- {
		if x.ticks[i].out != 0 {
			return true
		}
	}
	return false
}

// burst sends the next ticks, each on every line that does not leave it out.
func (x *exchange) burst() error {
	for n := uint64(0); n < x.o.burst && x.next <= x.all; n++ {
		packet, sent := x.make(x.next), false
		for _, l := range x.lines {
			l.relieve(x.stamp)
			if x.next > 1 && l.drops() { // the first one says where the session begins
				continue
			}
			if !sent {
				x.ticks[x.next].out, sent = time.Now().UnixNano(), true
			}
			if err := l.send(packet, x.next); err != nil {
				return err
			}
		}
		if !sent {
			x.dropped++
		}
		x.next++
	}
	return nil
}

// make makes the packet of a tick. It is valid until the next call.
func (x *exchange) make(n uint64) []byte {
	t, b := tickOf(x.o.seed, n), x.packet[moldLen:]
	t.put(b, isTick)
	if x.o.size > tickLen {
		harness.Fill(b[tickLen:], x.o.seed, n)
	}
	if x.o.session == "" {
		return b
	}
	putMold(x.packet, x.o.session, n, 1, int(x.o.size))
	return x.packet
}

// stampTick notes the kernel's stamp of a tick: the first one, if it left on several lines.
func (x *exchange) stampTick(tick uint32, at int64) {
	if m := &x.ticks[tick]; m.outKernel == 0 || at < m.outKernel {
		m.outKernel = at
	}
}

// take checks which tick an order answers.
func (x *exchange) take(o order) error {
	switch n := o.sequence; {
	case n >= x.next:
		return fmt.Errorf("an order answers tick %d, and %d ticks were sent", n, x.next-1)
	case x.ticks[n].out == 0:
		return fmt.Errorf("an order answers tick %d, which every line has left out", n)
	case x.ticks[n].in != 0:
		return fmt.Errorf("a second order answers tick %d", n)
	case n < x.latest:
		return fmt.Errorf("the order for tick %d comes behind that for tick %d", n, x.latest)
	}
	m := &x.ticks[o.sequence]
	m.in, m.inKernel = o.own, o.kernel
	x.latest = o.sequence
	x.answered++
	return nil
}

// finish ends the session of MoldUDP64 and the connection. Nothing more may come but the end.
func (x *exchange) finish(ctx context.Context) error {
	if x.o.session != "" {
		n := putMold(x.packet, x.o.session, x.next, endOfSession, 0)
		for _, l := range x.lines {
			if err := l.send(x.packet[:n], 0); err != nil {
				return err
			}
		}
	}
	if err := x.hangUp(ctx); err != nil {
		return err
	}
	for _, l := range x.lines {
		for limit := time.Now().Add(giveUp / 10); l.kernel && l.stamped < len(l.numbers) && time.Now().Before(limit); {
			l.stamps(len(l.numbers), x.stamp)
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// hangUp ends the connection for orders, and waits until the trader has ended it, too. Nothing more may come.
func (x *exchange) hangUp(ctx context.Context) error {
	if x.o.echo {
		return nil
	}
	for limit := time.Now().Add(giveUp); len(x.orders.replies) > 0 && time.Now().Before(limit); {
		if err := x.look(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	if err := x.orders.end(); err != nil {
		return fmt.Errorf("end the connection for orders: %w", err)
	}
	for limit := time.Now().Add(giveUp); time.Now().Before(limit); {
		if err := x.look(ctx, 10*time.Millisecond); errors.Is(err, errClosed) {
			break
		} else if err != nil {
			return err
		}
	}
	return nil
}
