package rdma

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/umem"
)

// MessagePort is SEND and receive as a umem.Port. Supply posts receives, Recv gives the
// messages that came; Send posts sends, Reap gives their frames back.
//
// A supplied frame or extent takes one message, which lands at Landing. A chain of frames is
// sent as one message, gathered from them.
//
// Of a received frame, Side.Queue is the number of the queue pair it came by, as Attach
// gave it, Side.Target the immediate (big-endian) of a message that came with one, else 0,
// and Side.Block the QPN of a datagram's sender, or how many bytes a peer wrote elsewhere with
// an immediate (the frame has none of them), else 0. Of a frame to be sent,
// Side.Queue says by which queue pair; that of a chain's first frame counts.
//
// A queue pair that failed gives its frames back with their status (Status.Errno),
// and Cause says what came first. Others go on.
type MessagePort struct {
	config  PortConfig
	region  *umem.Region
	worker  *umem.Holder
	holder  *umem.Holder
	senders []*sender // nil: detached
	loose   []Peer    // the port's, and not attached yet
	byQPN   numbers
	waiting []*sender // that have requests to be posted by Kick; some were detached since
	broken  []int     // numbers of queue pairs whose SendControl failed, for Broken
	receive receiver
	drained frameQueue // sent, or failed, to be reaped
	sent    completions
	came    completions
	event   portEvent
	stats   portStats
	sendMax int // frames in the port to be sent
	sending int // of those how many there are, reaped ones not
	closed  bool
	gone    bool // and closed altogether
}

var _ umem.Port = (*MessagePort)(nil)

// OpenPort makes a port of queue pairs that are, or will be, connected. It may be called on any
// thread; Attach and Detach belong to the worker's like the verbs.
func OpenPort(c PortConfig) (*MessagePort, error) {
	p := &MessagePort{config: c, loose: c.QueuePairs, event: portEvent{fd: -1, poll: -1}}
	if err := p.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open RDMA port %s: %w", c.Name, err), p.Close())
	}
	return p, nil
}

func (p *MessagePort) open() (err error) {
	c := &p.config
	if err := c.check(); err != nil {
		return err
	}
	p.worker, p.region = c.Worker, c.Worker.Book().Region()
	if p.holder, err = c.Worker.Book().NewHolder(umem.OwnerRDMA, "RDMA port "+c.Name); err != nil {
		return err
	}
	p.sent.queue, p.came.queue = c.SendCQ, c.ReceiveCQ
	p.sendMax = c.SendCQ.Depth()
	if c.Shared == nil {
		p.sendMax = min(p.sendMax, c.QueuePairs[0].QueuePair.Config().SendDepth)
	}
	p.drained = newFrameQueue(p.sendMax)
	p.byQPN.set(nil)
	for len(p.loose) > 0 {
		if _, err := p.Attach(p.loose[0]); err != nil {
			return err
		}
		p.loose = p.loose[1:]
	}
	if p.receive, err = p.newReceiver(); err != nil {
		return err
	}
	if c.Events {
		return p.event.open(c.SendCQ, c.ReceiveCQ)
	}
	return nil
}

// Attach adds a queue pair to a port with a shared receive queue, and returns its number. The queue
// pair is the port's from then on, unless there is an error.
func (p *MessagePort) Attach(q Peer) (int, error) {
	if p.config.Shared == nil && p.receive.target != nil {
		return 0, fmt.Errorf("queue pair %d: RDMA port %s has no shared receive queue, and so one queue pair for good", q.QueuePair.QPN(), p.config.Name)
	}
	if err := errors.Join(p.config.checkPeer(q), p.checkKind(q)); err != nil {
		return 0, fmt.Errorf("queue pair %d: %w", q.QueuePair.QPN(), err)
	}
	s := newSender(q, p.config.Memory, &p.stats.count)
	for n, old := range p.senders {
		if old == nil {
			p.senders[n] = s
			p.byQPN.set(p.senders)
			return n, nil
		}
	}
	if len(p.senders) == maxPeers {
		return 0, fmt.Errorf("queue pair %d: a port has at most %d", s.qpn, maxPeers)
	}
	p.senders = append(p.senders, s)
	p.waiting, p.broken = slices.Grow(p.waiting, len(p.senders)), slices.Grow(p.broken, len(p.senders))
	p.byQPN.set(p.senders)
	return len(p.senders) - 1, nil
}

// maxPeers is how many queue pairs Side.Queue can tell apart, and none of them.
const maxPeers = 1<<16 - 1

// checkKind reports a queue pair of datagrams among others, or the reverse: their messages
// begin at different places of a receive.
func (p *MessagePort) checkKind(q Peer) error {
	if datagrams := q.QueuePair.Config().Transport == UD; datagrams != p.config.Datagrams {
		return fmt.Errorf("it is of %v, and the port's Datagrams is %v", q.QueuePair.Config().Transport, p.config.Datagrams)
	}
	return nil
}

// Detach closes a queue pair. Frames it had to send come back from Reap, failed with
// ECANCELED unless they had a status of their own; receives of its own are then the port's until Close.
func (p *MessagePort) Detach(number int) error {
	s := p.senderOf(number)
	if s == nil {
		return fmt.Errorf("RDMA port %s: there is no queue pair number %d", p.config.Name, number)
	}
	p.collect()
	if err := s.close(); err != nil {
		return err
	}
	p.collect() // completions that came meanwhile: another queue pair may get its number
	s.closed = true
	s.fail(s.head, s.tail, unix.ECANCELED)
	p.stats.retire(s, s.tail, &p.drained)
	p.senders[number] = nil
	p.broken = slices.DeleteFunc(p.broken, func(n int) bool { return n == number })
	p.byQPN.set(p.senders)
	p.tell(true)
	return nil
}

// senderOf is the sender of a queue pair, nil where there is none of that number.
func (p *MessagePort) senderOf(number int) *sender {
	if number < 0 || number >= len(p.senders) {
		return nil
	}
	return p.senders[number]
}

// Cause is what made a queue pair fail, the first completion that did not succeed, or nil.
func (p *MessagePort) Cause(number int) error {
	s := p.senderOf(number)
	if s == nil || s.cause.Status == Success {
		return nil
	}
	cause := s.cause
	return &cause
}

// Kick posts what Supply, Send and SendControl queued, in one call for each queue.
func (p *MessagePort) Kick() error {
	if p.closed {
		return fmt.Errorf("kick RDMA port %s: %w", p.config.Name, unix.EBADF)
	}
	err := errors.Join(p.receive.post(), p.postAll())
	p.tell(false)
	if err != nil {
		return fmt.Errorf("kick RDMA port %s: %w", p.config.Name, err)
	}
	return p.fault()
}

// postAll posts what is queued. Who has more than the device takes is asked again by the next Kick.
func (p *MessagePort) postAll() error {
	var errs []error
	left := p.waiting[:0]
	for _, s := range p.waiting {
		if s.closed {
			continue
		}
		if err := s.post(); err != nil {
			errs = append(errs, err)
		}
		if s.waits = len(s.queued) > 0; s.waits {
			left = append(left, s)
		}
	}
	clear(p.waiting[len(left):])
	p.waiting = left
	return errors.Join(errs...)
}

// queue has Kick post what a sender has.
func (p *MessagePort) queue(s *sender) {
	if !s.waits {
		s.waits = true
		p.waiting = append(p.waiting, s)
	}
}

// fault is an error that polling met.
func (p *MessagePort) fault() error {
	if err := errors.Join(p.sent.err, p.came.err, p.event.err); err != nil {
		return fmt.Errorf("RDMA port %s: %w", p.config.Name, err)
	}
	return nil
}

// Wake has FD poll readable until a verb is called next.
func (p *MessagePort) Wake() {
	if p.event.poll >= 0 {
		p.event.show(true)
	}
}

// FD polls readable while Recv or Reap has something to give, or a completion of SendControl
// is there, which Reap takes; -1 without Events, and after Close.
func (p *MessagePort) FD() int { return p.event.poll }

// Limits says what the port can take. It holds as many frames to be sent as its send
// completion queue is deep, and of each queue pair as many messages as that one's send queue.
func (p *MessagePort) Limits() umem.Limits {
	l := umem.Limits{Supply: p.receive.depth, Send: p.sendMax}
	for _, s := range p.senders {
		if s == nil {
			continue
		}
		if l.Frames == 0 || s.message < l.Message {
			l.Message = s.message
		}
		if l.Frames == 0 || s.pieces < l.Frames {
			l.Frames = s.pieces
		}
	}
	l.Frames = min(l.Frames, l.Send)
	return l
}

// Close destroys the queue pairs, and gives every frame to the pool. After an error it may
// be called again.
func (p *MessagePort) Close() error {
	if p.gone {
		return nil
	}
	p.closed = true
	if err := p.closeParts(); err != nil {
		// The device may still write to frames: they are not given back.
		return fmt.Errorf("close RDMA port %s: %w", p.config.Name, err)
	}
	p.gone = true
	if p.holder != nil {
		p.holder.Close()
	}
	return nil
}

func (p *MessagePort) closeParts() error {
	c := &p.config
	errs := []error{p.event.close()}
	for _, s := range p.senders {
		if s != nil {
			errs = append(errs, s.close())
		}
	}
	for _, q := range p.loose {
		errs = append(errs, q.close())
	}
	if c.Shared != nil {
		errs = append(errs, c.Shared.Close())
	}
	return errors.Join(append(errs, closeQueues(c.SendCQ, c.ReceiveCQ))...)
}

func closeQueues(queues ...CompletionQueue) error {
	var errs []error
	for _, q := range queues {
		if q != nil {
			errs = append(errs, q.Close())
		}
	}
	return errors.Join(errs...)
}

// PortConfig says what a Port is made of. All it names but Worker and Memory is the port's from
// OpenPort on, which closes it also when it returns an error.
type PortConfig struct {
	Name   string       // for people
	Worker *umem.Holder // who passes frames in and is passed those that come out
	Memory MemoryRegion // of the worker's region, with LocalWrite; outlives the port

	SendCQ    CompletionQueue
	ReceiveCQ CompletionQueue // another one
	// Shared has the receives of all queue pairs. Without it there is one queue pair, with
	// receives of its own.
	Shared SharedReceiveQueue
	// QueuePairs are those there are from the start; Attach adds more.
	QueuePairs []Peer

	// Datagrams says that the queue pairs are of UD. Such and others do not share a port.
	Datagrams bool
	// Landing is where in a supplied frame or extent a message lands, bytes from its start.
	// Of datagrams the network header lies in front of it, which needs GRHBytes.
	Landing uint32
	// Spread is the most bytes of a message and of what is in front of it, where messages may land at other multiples of 4096 bytes behind Landing in
	// extents that have room for more: extents are powers of two long, so what always lies at their beginnings shares few sets of the processor's caches.
	// 0: at Landing always.
	Spread uint64
	// Events makes FD tell of completions, at the price of arming the queues.
	Events bool
}

// Peer is a queue pair and, where it is one of datagrams, whom it sends to.
type Peer struct {
	QueuePair QueuePair
	Handle    AddressHandle // the port's, too; nil for RC and UC
	QPN, QKey uint32        // of the peer, of datagrams
	// Message is the most bytes of one message; the port's maximum or, of datagrams, the MTU.
	Message uint64
	// Grants are rights of the peer's that are made with the queue pair, nil where there are none. The port takes their completions, and leaves
	// their requests room in the send queue; they stay the caller's, who closes them before the queue pair is.
	Grants *Grants
}

func (c *PortConfig) check() error {
	var errs []error
	need := func(ok bool, text string) {
		if !ok {
			errs = append(errs, errors.New(text))
		}
	}
	need(c.Worker != nil, "no Worker")
	need(c.Memory != nil && c.Memory.Access()&LocalWrite != 0, "no Memory that may be written locally")
	need(c.SendCQ != nil && c.ReceiveCQ != nil && c.SendCQ != c.ReceiveCQ, "it needs two completion queues")
	need(c.Shared != nil || len(c.QueuePairs) == 1, "without a shared receive queue there is exactly one queue pair")
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if size := c.Worker.Book().Region().FrameSize(); c.Landing >= size {
		return fmt.Errorf("the landing %d is beyond a frame of %d bytes", c.Landing, size)
	}
	return nil
}

// checkPeer reports a queue pair that the port cannot work with.
func (c *PortConfig) checkPeer(q Peer) error {
	g := q.QueuePair.Config()
	switch {
	case g.Transport == UD && c.Landing < GRHBytes:
		return fmt.Errorf("the landing %d has no room for the network header of datagrams: it must be at least %d", c.Landing, GRHBytes)
	case g.Transport == UD && q.Handle == nil:
		return errors.New("datagrams need an address handle")
	case g.SendCQ != c.SendCQ || g.ReceiveCQ != c.ReceiveCQ:
		return errors.New("its completion queues are not the port's")
	case q.Message == 0:
		return errors.New("the most bytes of one message are not set")
	case c.Shared != nil && g.Shared != c.Shared:
		return errors.New("its receive queue is not the port's shared one")
	}
	return nil
}

// SendControl queues a SEND, by the queue pair of a number, of bytes at a region's address that are the caller's and stay so: they are in no frame
// that Reap gives back, and are to stay as they are while the device may read them, which is until UnderWay says that the request is done. A request
// that is not to be told of is known to be done with a later one that is; each signalEvery-th, and one that fills the queue, is told of in any case. It is
// false when there is no room now, or no such queue pair. Stats do not count such messages.
func (p *MessagePort) SendControl(number int, addr uint64, length uint32, told bool) bool {
	s := p.senderOf(number)
	if p.closed || s == nil {
		return false
	}
	if s.full() {
		p.collect()
	}
	if s.full() {
		return false
	}
	s.control(s.form, addr, length)
	if last := &s.queued[len(s.queued)-1]; (told || s.full()) && last.Flags&Signaled == 0 {
		s.signal(last)
	}
	p.queue(s)
	return true
}

// UnderWay is how many requests of a queue pair the device is not known to be done with, as of the last completions that were taken.
func (p *MessagePort) UnderWay(number int) int {
	if s := p.senderOf(number); s != nil {
		return s.underWay()
	}
	return 0
}

// Broken gives the numbers of queue pairs that a request of SendControl failed on, each once; Cause says why. It returns how many there were.
func (p *MessagePort) Broken(dst []int) int {
	n := copy(dst, p.broken)
	p.broken = p.broken[:copy(p.broken, p.broken[n:])]
	return n
}

// breaks notes a request that failed and has no frame to say so.
func (p *MessagePort) breaks(number int, c *WorkCompletion) {
	s := p.senders[number]
	if _, _, frames := readID(c.ID); c.Status != Success && frames == 0 && !s.broken {
		s.broken = true
		p.broken = append(p.broken, number)
	}
}

// portCounters are a port's own, written by its thread only.
type portCounters struct {
	received, bytesReceived, immediates, sent, bytesSent, refused, inlined uint64
}

// portStats are the counters others may read, stored once a batch by the port's thread.
type portStats struct {
	count    portCounters
	shown    [7]counter.Counter
	statuses [statuses]atomic.Uint64
}

func (c *portCounters) list() [7]uint64 {
	return [7]uint64{c.received, c.bytesReceived, c.immediates, c.sent, c.bytesSent, c.refused, c.inlined}
}

func (s *portStats) sentOne(f umem.Frame) {
	s.count.bytesSent += uint64(f.Len)
	if !f.Continues() {
		s.count.sent++
	}
}

// failed counts a completion that did not succeed.
func (s *portStats) failed(status Status) { s.statuses[min(status, General)].Add(1) }

// publish shows the counters that changed.
func (s *portStats) publish() {
	for i, v := range s.count.list() {
		s.shown[i].Set(v)
	}
}

// PortStats are a port's counters since it was opened.
type PortStats struct {
	Received, BytesReceived uint64            // messages, and bytes of them
	Immediates              uint64            // of the messages those with an immediate
	Sent, BytesSent         uint64            // messages that completed, and bytes of them
	Refused                 uint64            // messages that could not be sent at all
	Inlined                 uint64            // bytes of messages that were copied into their work requests, see Inline
	Failed                  map[Status]uint64 // completions that did not succeed
}

// Stats may be called from any goroutine.
func (p *MessagePort) Stats() PortStats { return p.stats.read() }

func (s *portStats) read() PortStats {
	at := func(i int) uint64 { return s.shown[i].Load() }
	out := PortStats{Received: at(0), BytesReceived: at(1), Immediates: at(2), Sent: at(3), BytesSent: at(4), Refused: at(5), Inlined: at(6), Failed: map[Status]uint64{}}
	for status := range s.statuses {
		if n := s.statuses[status].Load(); n > 0 {
			out.Failed[Status(status)] = n
		}
	}
	return out
}
