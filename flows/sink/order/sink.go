package order

import (
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/worker"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/internal/tcpsend"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

var _ pipeline.Sink = (*Sink)(nil)

// Sink sends orders. It belongs to the worker's thread, except where the interface says otherwise.
type Sink struct {
	region    *umem.Region
	config    config.Order
	holder    *umem.Holder
	free      *umem.FreeList // of the source
	net       *xdp.Interface
	port      *xdp.Port
	own       umem.FreeList // frames for segments
	total     int           // of those
	queued    int           // with the port
	halt      *pipeline.Halt
	limits    limits
	begun     time.Time // of the clock of limits
	keeper    *keeper
	rules     *strategy  // nil: a program makes the orders
	rehearsal *rehearsal // nil: the worker does not spin

	conn     *tcpsend.Conn // nil: there is none
	next     time.Time     // when to read the state of the connection
	last     time.Time     // when the program took something of a connection that has ended
	replies  *replies
	outcomes []wire.Reason // by order, modulo the length, a power of two
	taken    uint64        // orders that the sink has decided on
	blocked  bool
	stopping bool // the flow stops
	batch    [pipeline.Burst]umem.Frame

	connected atomic.Pointer[connection] // for the status; nil: there is none
	times     pipeline.FrameTimes
	orders    times // of each order
	count     counters
}

// counters are written by the worker's thread only.
type counters struct {
	sent                counter.Counter // in a segment of ours
	bytes               counter.Counter // of orders that left
	segmentBytes        counter.Counter // of segments of ours
	plain               [tcpsend.Reasons]counter.Counter
	waits               [tcpsend.Reasons]counter.Counter // rounds in which an order waited
	noRoom              counter.Counter                  // orders that the kernel sent because the port had no room
	noFrame             counter.Counter                  // rounds in which an order waited for a frame
	refused             [verdicts]counter.Counter
	broken              counter.Counter // segments that did not leave because the interface did not take them
	partial             counter.Counter // orders of which the kernel took a part at first
	early               counter.Counter // acknowledgements that came before the kernel had the order
	received            counter.Counter // bytes of the exchange
	copied              counter.Counter
	stalls              counter.Counter
	lost                counter.Counter // connections that ended
	retransmitted       counter.Counter // segments that the kernel has sent again
	before, earlyBefore uint64          // retransmitted and early of earlier connections
	unacknowledged      counter.Counter // bytes
	roundTrip           counter.Counter // nanoseconds
}

// connection is what the status says about the connection.
type connection struct {
	local, remote string
	since         time.Time
}

// Times at which the state of the connection is read, if no packet of the exchange says that there is news.
const (
	settleTime = 50 * time.Microsecond // from a packet's arrival until TCP has processed it
	lookTime   = 5 * time.Millisecond
)

func (s *Sink) Reap(now time.Time) {
	s.blocked = false
	s.reapPort()
	s.replies.reap()
	if s.conn == nil {
		if c := s.keeper.take(); c != nil {
			s.use(c, now)
		}
	}
	if s.conn != nil {
		s.look(now)
	}
	if s.conn != nil && s.rules != nil {
		s.keepUp(now)
	}
	if s.halt.Stopped() {
		s.halt.SetUnsent(s.unsent())
	}
}

// unsent returns how many orders may still leave: those whose segments the interface has, and the one that the kernel may
// have taken and not sent.
func (s *Sink) unsent() int {
	n := s.queued
	if s.conn != nil && s.conn.Unsent() > 0 {
		n++
	}
	return n
}

// reapPort takes back frames whose segments have left.
func (s *Sink) reapPort() {
	for s.queued > 0 {
		n := s.port.Reap(s.batch[:])
		s.orders.reaped(s.batch[:n])
		for _, f := range s.batch[:n] {
			s.own.Push(s.whole(f))
		}
		s.queued -= n
		if n < len(s.batch) {
			return
		}
	}
}

// whole is the frame around a view.
func (s *Sink) whole(f umem.Frame) umem.Frame {
	start, room := s.region.Start(f)
	return umem.Frame{Addr: start, Len: uint32(room)}
}

// use begins to use a connection.
func (s *Sink) use(c *tcpsend.Conn, now time.Time) {
	s.conn, s.next = c, now
	if s.rules != nil {
		s.rules.session.begin(now)
	}
	s.connected.Store(&connection{c.Local().String(), c.Remote().String(), now})
}

// look reads the state of the connection if there may be news, and takes what the exchange has sent.
func (s *Sink) look(now time.Time) {
	news := s.conn.HasNews()
	if !news && now.Before(s.next) {
		return
	}
	s.next = now.Add(lookTime)
	if news {
		s.next = now.Add(settleTime)
	}
	s.conn.Settle()
	alive := s.conn.Refresh()
	took := s.receive()
	s.count.retransmitted.Set(s.count.before + uint64(s.conn.Retransmitted()))
	s.count.early.Set(s.count.earlyBefore + uint64(s.conn.Early()))
	s.count.unacknowledged.Set(uint64(s.conn.Unacknowledged()))
	s.count.roundTrip.Set(uint64(s.conn.RoundTrip()))
	if (!alive || s.conn.Err() != nil) && !s.lingers(took, now) {
		s.lose()
	}
}

// lose gives a connection that has ended back to the keeper.
func (s *Sink) lose() {
	s.count.lost.Add(1)
	s.count.before, s.count.earlyBefore = s.count.retransmitted.Load(), s.count.early.Load()
	s.count.unacknowledged.Set(0)
	s.connected.Store(nil)
	if s.rules != nil {
		s.rules.session.end()
	}
	s.keeper.giveBack(s.conn)
	s.conn, s.last = nil, time.Time{}
}

func (s *Sink) Write(b *pipeline.Batch, now time.Time) bool {
	fs := b.Held()
	if len(fs) == 0 {
		return true
	}
	if s.rules != nil {
		return s.writeMessages(b, now)
	}
	done := 0
	for done < len(fs) {
		outcome, decided := s.order(fs[done], now)
		if !decided {
			break
		}
		s.outcomes[s.taken&uint64(len(s.outcomes)-1)] = outcome
		s.taken++
		done++
	}
	s.record(fs[:done])
	s.free.Push(fs[:done]...)
	all := done == len(fs)
	b.Drop(done)
	if !all {
		s.Block()
	}
	return all
}

// record records how long orders took from their arrival at the flow until they left, or were refused.
func (s *Sink) record(fs []umem.Frame) {
	if len(fs) == 0 {
		return
	}
	at := uint64(time.Now().UnixNano())
	run := s.times.Done.Run()
	for i := range fs {
		run.Record(pipeline.Elapsed(at, pipeline.Arrival(s.region.Side(fs[i]), at)))
	}
	run.End()
}

// order sends one order, or refuses it. decided: it does not have to wait.
func (s *Sink) order(f umem.Frame, now time.Time) (outcome wire.Reason, decided bool) {
	switch {
	case s.halt.Stopped():
		s.halt.Hold()
		s.count.refused[stopped].Add(1)
		return wire.Stopped, true
	case s.conn == nil:
		s.count.refused[unconnected].Add(1)
		return wire.NotDone, true
	}
	why := s.conn.Guard(int(f.Len))
	if why == tcpsend.Closed {
		s.next = now // to look at it
		s.count.refused[unconnected].Add(1)
		return wire.NotDone, true
	}
	if why.Waits() {
		return s.wait(&s.count.waits[why])
	}
	var one [1]umem.Frame
	if s.own.Len() == 0 {
		s.reapPort()
	}
	if !s.own.Pop(one[:]) {
		return s.wait(&s.count.noFrame)
	}
	b := s.region.At(one[0].Addr, tcpsend.Headroom+uint64(f.Len))
	payload := b[tcpsend.Headroom:]
	copy(payload, s.region.Bytes(f))
	s.count.copied.Add(uint64(len(payload)))
	// From here on only the copy counts: the program may change its own memory at any time.
	if v := s.limits.check(payload, int64(now.Sub(s.begun))); v != permitted {
		s.own.Push(one[0])
		s.count.refused[v].Add(1)
		return wire.OverLimit, true
	}
	s.orders.begin(s.taken+1, s.region.Side(f))
	return s.leave(one[0], b, payload, why, time.Now())
}

// leave sends an order that the limits permit. at is the time, read after Guard.
func (s *Sink) leave(frame umem.Frame, b, payload []byte, why tcpsend.Reason, at time.Time) (outcome wire.Reason, decided bool) {
	if why == tcpsend.None && s.port.Room() > 0 {
		s.delegate(frame, b, payload, at)
		s.count.bytes.Add(uint64(len(payload)))
		return wire.None, true
	}
	s.own.Push(frame)
	if s.conn.Plain(payload) {
		s.count.bytes.Add(uint64(len(payload)))
		if why == tcpsend.None {
			s.count.noRoom.Add(1)
			s.orders.leftBy(noRoomWay)
		} else {
			s.count.plain[why].Add(1)
			s.orders.leftBy(way(why))
		}
		return wire.None, true
	}
	s.limits.giveBack()
	if s.conn.Err() != nil {
		s.lose()
		s.count.refused[unconnected].Add(1)
		return wire.NotDone, true
	}
	return s.wait(&s.count.waits[tcpsend.Buffer])
}

// wait lets an order wait, and counts the reason. While the flow stops it refuses the order instead.
func (s *Sink) wait(why *counter.Counter) (outcome wire.Reason, decided bool) {
	why.Add(1)
	if s.stopping && s.rules == nil {
		s.count.refused[ended].Add(1)
		return wire.Closing, true
	}
	return 0, false
}

// delegate sends an order in a segment of ours. The kernel has it behind that.
func (s *Sink) delegate(frame umem.Frame, b, payload []byte, at time.Time) {
	start := s.conn.Build(b, at)
	slot := s.orders.slot(frame)
	if s.transmit(umem.Frame{Addr: frame.Addr + uint64(start), Len: uint32(len(b) - start)}) {
		s.orders.left(slot)
	} else {
		s.own.Push(frame)
		s.orders.lost()
	}
	if !s.conn.Book(payload) {
		s.count.partial.Add(1)
	}
	s.count.sent.Add(1)
}

// transmit passes a segment to the interface. It reports whether the port has the frame. A segment that does not leave
// is lost for the kernel, which sends it again.
func (s *Sink) transmit(segment umem.Frame) bool {
	sent, err := s.port.SendNow(segment)
	if !sent && err == nil { // not in copy mode
		one := [1]umem.Frame{segment}
		if sent = s.port.Send(one[:]) == 1; sent {
			err = s.port.Kick()
		}
	}
	if err != nil || !sent {
		s.count.broken.Add(1)
	}
	if sent {
		s.queued++
		s.count.segmentBytes.Add(uint64(segment.Len))
	}
	return sent
}

// Taken returns how many orders the sink has decided on. It is for the source, on the worker's thread.
func (s *Sink) Taken() uint64 { return s.taken }

// Outcome says what became of an order of the run, of which the sink has decided on at least so many.
func (s *Sink) Outcome(n uint64) wire.Reason { return s.outcomes[n&uint64(len(s.outcomes)-1)] }

func (s *Sink) Block() {
	s.blocked = true
	s.count.stalls.Add(1)
}

func (s *Sink) Blocked() bool { return s.blocked }

func (s *Sink) Flush(_ bool, now time.Time) {
	if s.rehearsal != nil {
		s.rehearsal.run(s, now)
	}
}

// Kick implements pipeline.Sink. An interface that was full may have room.
func (s *Sink) Kick() {
	s.replies.kick()
	if s.queued > 0 {
		_ = s.port.Kick() // Check reports an interface that is down or gone
	}
}

func (s *Sink) InFlight() int { return s.total - s.own.Len() }

// Stopping implements pipeline.Stopper: an order that would have to wait is refused.
func (s *Sink) Stopping() { s.stopping = true }

// Drain implements pipeline.Sink: the kernel has all orders. It sends them, also after the connection is closed.
func (s *Sink) Drain(time.Time) (bool, error) {
	return s.conn == nil || s.conn.Settle(), nil
}

func (s *Sink) FDs(dst []unix.PollFd) []unix.PollFd {
	dst = s.replies.fds(dst)
	if s.conn != nil && s.replies.takes() {
		dst = append(dst, unix.PollFd{Fd: int32(s.conn.FD()), Events: unix.POLLIN})
	}
	return dst
}

// Deadline implements pipeline.Sink. Nothing signals that an acknowledgement has arrived.
func (s *Sink) Deadline(now time.Time) time.Time {
	switch {
	case s.replies.ready:
		return now
	case s.blocked:
		return now.Add(settleTime)
	case s.queued > 0 || s.conn != nil && (s.conn.Unacknowledged() > 0 || s.next.Before(now)):
		return now.Add(time.Millisecond)
	}
	return now.Add(min(lookTime, worker.MaxWait))
}

func (s *Sink) Observe(to *status.Flow) error {
	c, g := &s.count, s.net.Granted()
	to.ZeroCopy, to.WhyNot = g.ZeroCopy, g.WhyNotZeroCopy()
	o := &status.Orders{
		Connects: s.config.Connect, Given: s.config.Given, Interface: s.net.Name(), Stopped: s.halt.Stopped(), Held: s.halt.Held(), Segments: c.sent.Load(), Early: c.early.Load(),
		Bytes: c.bytes.Load(), Kernel: map[string]uint64{"no_room": c.noRoom.Load()}, Waits: map[string]uint64{"ring": c.noFrame.Load()}, Broken: c.broken.Load(), Partial: c.partial.Load(),
		Received: c.received.Load(), Connections: s.keeper.connections.Load(), Lost: c.lost.Load(), Failed: s.keeper.failed.Load(),
		Retransmitted: c.retransmitted.Load(), Unacknowledged: c.unacknowledged.Load(), RoundTrip: time.Duration(c.roundTrip.Load()).Seconds(), NoPath: s.keeper.pathError(),
	}
	if p := s.keeper.follows(); p != nil {
		o.NextHop, o.MTU = net.HardwareAddr(p.Destination[:]).String(), p.MTU
	}
	if now := s.connected.Load(); now != nil {
		o.Connected, o.Local, o.Remote, o.Since = true, now.local, now.remote, now.since
	}
	for why := tcpsend.None + 1; why < tcpsend.Closed; why++ {
		if why.Waits() {
			o.Waits[why.String()] = c.waits[why].Load()
		} else {
			o.Kernel[why.String()] = c.plain[why].Load()
		}
	}
	for v := permitted + 1; v < verdicts; v++ {
		to.Dropped[verdictNames[v]] = c.refused[v].Load()
	}
	to.Orders = o
	to.CopiedBytes["order"] = c.copied.Load()
	to.KernelBytes["tcp"], to.KernelBytes["xdp"] = o.Bytes+o.Received, 0
	if !g.ZeroCopy {
		to.KernelBytes["xdp"] = c.segmentBytes.Load()
	}
	to.Stalls, to.FrameTimes = c.stalls.Load(), s.times.Status()
	s.orders.observe(o)
	s.replies.observe(to)
	if s.rules != nil {
		s.rules.observe(o)
	}
	return nil
}

func (s *Sink) Check(time.Time) (waits, ends error) {
	if err := s.net.Check(); err != nil {
		if isDown(err) {
			return err, nil
		}
		return nil, err
	}
	return s.keeper.waitsFor(), nil
}

func (s *Sink) Begin() error {
	s.keeper.begin()
	if s.replies.end != nil {
		s.replies.end.Begin()
	}
	return nil
}

func (s *Sink) Close() error {
	s.conn = nil // the keeper closes it
	s.reapPort()
	s.orders.abandon()
	return nil
}

func (s *Sink) Announce() []any {
	g := s.net.Granted()
	a := []any{"connects", s.config.Connect, "interface", s.net.Name(), "queue", s.port.Queue(), "zero_copy", g.ZeroCopy}
	if why := g.WhyNotZeroCopy(); why != "" {
		a = append(a, "why_no_zero_copy", why)
	}
	if s.config.Given != "" {
		a[0], a[1] = "given", s.config.Given
	}
	return a
}
