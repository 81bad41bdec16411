package channel

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach"
	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// ReceiverConfig configures a Receiver.
type ReceiverConfig struct {
	Name     string // for logs and errors
	Flow     string // name of the flow, which a peer may ask for
	Inlet    *attach.Inlet
	Endpoint *stream.Endpoint   // with the region of the ring; it outlives the receiver
	Others   []*stream.Endpoint // further devices at which the peer can connect, with the same region
	Worker   *umem.Holder       // of the pool for its own frame
	// Permit decides whether a peer may write the channel; nil: every peer may.
	Permit      func(connect.Peer, protocol.Hello) error
	AllowAnyGID bool
	Events      bool // FDs poll readable for events
	Log         *slog.Logger
}

// ackEvery is the longest time until the sender learns what was acknowledged, if it does not wait for it.
const ackEvery = time.Millisecond

// Receiver takes a channel from one peer at a time: a new one replaces the present one, which may not have noticed that
// its connection has ended. See the package's documentation for its threads.
type Receiver struct {
	config ReceiverConfig
	ring   *wire.Channel
	slots  uint64
	holder *umem.Holder
	memory []byte // of one frame, for acknowledgements
	ports  []*port

	turn    sync.Mutex // held by the connection that is served
	present atomic.Pointer[visit]

	served   uint64  // of connect: numbering of the last connection; 0: there was none
	in       *inLink // nil: not connected
	arrived  uint64  // sequence up to which everything has arrived
	closed   bool
	again    []rdma.ReceiveRequest // receives to post
	messages counter.Counter       // sequences that were published
	signals  counter.Counter
	stats    receiverCounts
}

// inLink is a connection.
type inLink struct {
	at      *port
	pair    rdma.QueuePair
	number  uint32
	taken   uint64 // WRITEs with immediate
	told    ack    // what the sender was told last
	telling bool   // an acknowledgement is being sent
	last    time.Time
	cause   error
	broken  chan struct{}
}

// receiverCounts are counted by Serve.
type receiverCounts struct {
	connections, gaps, renumbered atomic.Uint64
	mu                            sync.Mutex
	refused                       map[protocol.Reason]uint64
	peer                          string
	since                         time.Time
}

// OpenReceiver makes a receiver. Serve lets a peer in.
func OpenReceiver(c ReceiverConfig) (*Receiver, error) {
	slots, _ := c.Inlet.Slots()
	r := &Receiver{config: c, ring: c.Inlet.Ring(), slots: uint64(slots), again: make([]rdma.ReceiveRequest, 0, maxSignals)}
	r.arrived = r.ring.Last()
	r.stats.refused = map[protocol.Reason]uint64{}
	for _, e := range append([]*stream.Endpoint{c.Endpoint}, c.Others...) {
		one := &port{endpoint: e}
		one.handle = func(c *rdma.WorkCompletion) { r.complete(one, c) }
		r.ports = append(r.ports, one)
	}
	if err := r.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open receiver %s: %w", c.Name, err), r.Close())
	}
	return r, nil
}

func (r *Receiver) open() (err error) {
	e := r.config.Endpoint
	if r.holder, err = r.config.Worker.Book().NewHolder(umem.OwnerRDMA, "receiver "+r.config.Name); err != nil {
		return err
	}
	var one [1]umem.Frame
	if r.holder.Take(one[:]) == 0 {
		return errors.New("the pool has no frame for acknowledgements: open a larger region (region.size)")
	}
	r.memory = e.Region.At(one[0].Addr, uint64(e.Region.FrameSize()))
	for _, p := range r.ports {
		if err := p.open(r, one[0].Addr); err != nil {
			return err
		}
	}
	return nil
}

// Close gives everything back. Serve must have ended.
func (r *Receiver) Close() error {
	if err := r.closePorts(); err != nil {
		return fmt.Errorf("close receiver %s: %w", r.config.Name, err)
	}
	if r.holder != nil {
		r.holder.Close()
		r.holder = nil
	}
	r.closed = true
	return nil
}

// Poll publishes what has arrived. The error says that the device is gone.
func (r *Receiver) Poll(now time.Time) (more bool, err error) {
	if r.closed {
		return false, nil
	}
	before := r.arrived
	n, err := r.drain()
	if l := r.in; l != nil && l.cause == nil {
		if r.arrived != before {
			r.config.Inlet.Publish(r.arrived)
			r.messages.Add(r.arrived - before)
			l.at.messages.Add(r.arrived - before)
		}
		r.repost(l)
		r.acknowledge(l, now)
	}
	more = n > 0
	if r.config.Events && err == nil {
		var again bool
		again, err = r.arm()
		more = more || again
	}
	if err != nil {
		return false, fmt.Errorf("receiver %s: %w", r.config.Name, err)
	}
	return more, nil
}

// drain processes the completions of all devices.
func (r *Receiver) drain() (n int, err error) {
	for _, p := range r.ports {
		got, err := p.done.Drain(p.handle)
		if n += got; err != nil {
			return n, err
		}
	}
	return n, nil
}

// arm makes the devices signal their next completions. It reports whether to poll again.
func (r *Receiver) arm() (again bool, err error) {
	for _, p := range r.ports {
		more, err := p.done.Arm(true, true)
		if again = again || more; err != nil {
			return again, err
		}
	}
	return again, nil
}

// complete processes a completion.
func (r *Receiver) complete(p *port, c *rdma.WorkCompletion) {
	l := r.in
	switch {
	case l == nil || l.at != p || c.QPN != l.number:
	case c.Status != rdma.Success:
		l.fail(c.Err())
	case c.ID == ackID:
		l.telling = false
	case c.Kind != rdma.ReceivedWrite || c.Flags&rdma.HasImmediate == 0:
		l.fail(fmt.Errorf("%w: the peer sends %v", protocol.BadKind, c.Kind))
	default:
		b := c.Immediate()
		n := following(r.arrived, be.Uint32(b[:]))
		if n == r.arrived || n-r.arrived > 1<<31 {
			l.fail(fmt.Errorf("%w: message %d follows %d", protocol.BadSequence, uint32(n), r.arrived))
			return
		}
		r.arrived = n
		l.taken++
		r.signals.Add(1)
		r.again = append(r.again, rdma.ReceiveRequest{})
	}
}

// repost posts receives again.
func (r *Receiver) repost(l *inLink) {
	if len(r.again) == 0 {
		return
	}
	if _, err := l.pair.PostReceive(r.again, nil); err != nil {
		l.fail(fmt.Errorf("post receives: %w", err))
	}
	r.again = r.again[:0]
}

// ackID is the ID of an acknowledgement's SEND.
const ackID = 1 << 63

// acknowledge tells the sender what was acknowledged, if it is time.
func (r *Receiver) acknowledge(l *inLink, now time.Time) {
	unsaid := l.taken - l.told.taken
	if l.telling || unsaid < maxSignals/8 && r.arrived-l.told.acknowledged < r.slots/8 && now.Sub(l.last) < ackEvery {
		return
	}
	a := ack{r.config.Inlet.Acknowledged(r.arrived), l.taken}
	a.acknowledged = max(a.acknowledged, l.told.acknowledged)
	if unsaid < maxSignals/8 && a.acknowledged-l.told.acknowledged < r.slots/8 && (a == l.told || now.Sub(l.last) < ackEvery) {
		return
	}
	a.put(r.memory[:ackLen])
	request := [1]rdma.SendRequest{{ID: ackID, Op: rdma.Send, Flags: rdma.Signaled, SGEs: 1}}
	element := [1]rdma.SGE{{Addr: l.at.control.Addr(), Length: ackLen, LKey: l.at.control.LKey()}}
	if _, err := l.pair.PostSend(request[:], element[:]); err != nil {
		l.fail(fmt.Errorf("post an acknowledgement: %w", err))
		return
	}
	l.told, l.telling, l.last = a, true, now
}

// fail records why the connection ends, and makes Serve end it.
func (l *inLink) fail(cause error) {
	if l.cause == nil || errors.Is(l.cause, rdma.WorkFlushed) && !errors.Is(cause, rdma.WorkFlushed) {
		l.cause = cause
	}
	select {
	case l.broken <- struct{}{}:
	default:
	}
}

// FDs appends the descriptors that become readable when there is something to do.
func (r *Receiver) FDs(dst []unix.PollFd) []unix.PollFd {
	if r.closed {
		return dst
	}
	for _, p := range r.ports {
		dst = append(dst, unix.PollFd{Fd: int32(p.done.Queue.FD()), Events: unix.POLLIN})
	}
	return dst
}

// Deadline returns when to call Poll again although no descriptor is readable: readers say what they have read in memory.
func (r *Receiver) Deadline(now, idle time.Time) time.Time {
	if l := r.in; l != nil && (r.arrived != l.told.acknowledged || l.taken != l.told.taken) {
		return now.Add(ackEvery)
	}
	return idle
}

// ReceiverStats describes a receiver.
type ReceiverStats struct {
	Peer        string // of the present connection; empty: none
	Since       time.Time
	Connections uint64
	Messages    uint64 // sequences that have arrived or were passed over, since the receiver was opened
	Signals     uint64 // batches of messages
	Gaps        uint64 // messages that were lost between connections
	Renumbered  uint64 // times that a peer's numbering was new
	Refused     map[protocol.Reason]uint64
}

// Stats describes the receiver. Any goroutine may call it.
func (r *Receiver) Stats() ReceiverStats {
	c := &r.stats
	s := ReceiverStats{
		Connections: c.connections.Load(), Messages: r.messages.Load(), Signals: r.signals.Load(), Gaps: c.gaps.Load(), Renumbered: c.renumbered.Load(),
		Refused: map[protocol.Reason]uint64{},
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Peer, s.Since = c.peer, c.since
	for why, n := range c.refused {
		s.Refused[why] = n
	}
	return s
}

// Messages returns how many sequences have arrived. Any goroutine may call it. It takes no lock.
func (r *Receiver) Messages() uint64 { return r.messages.Load() }
