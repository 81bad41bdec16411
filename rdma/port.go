package rdma

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

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
