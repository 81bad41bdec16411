package msg

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/mr"
	"github.com/unifiedd/unifiedd/umem"
)

// Port is SEND and receive as a umem.Port. Supply posts receives, Recv returns received
// messages; Send posts sends, Reap returns their frames.
//
// A supplied frame or extent takes one message, which lands at Landing. A chain of frames is sent
// as one message.
//
// Of a received frame, Side.Queue is the number of the queue pair, as Attach returned it;
// Side.Target is the immediate (big-endian) of a message that has one, else 0; Side.Block is the
// QPN of a datagram's sender, or the number of bytes that the peer wrote elsewhere by a WRITE with
// immediate (the frame has none of them), else 0. Of a frame to be sent, Side.Queue selects the
// queue pair; that of a chain's first frame counts.
//
// A queue pair that fails returns its frames with a status (Status.Errno), and Cause returns the
// first failure. The others continue.
type Port struct {
	config  Config
	region  *umem.Region
	worker  *umem.Holder
	holder  *umem.Holder
	senders []*sender // nil: detached
	loose   []Peer    // owned by the port, and not attached yet
	byQPN   numbers
	waiting []*sender // senders with requests for Kick; some may be detached
	broken  []int     // queue pairs whose SendControl failed, for Broken
	receive receiver
	drained frameQueue // sent or failed frames for Reap
	sent    completions
	came    completions
	event   event
	stats   stats
	sendMax int // the most frames in the port for sending
	sending int // the frames in the port for sending
	closed  bool
	gone    bool // Close has succeeded
}

var _ umem.Port = (*Port)(nil)

// Open makes a port of queue pairs that are connected, or will be. It may be called from any
// thread. Attach, Part and Detach belong to the worker's thread, as do the verbs.
func Open(c Config) (*Port, error) {
	p := &Port{config: c, loose: c.QueuePairs, event: event{fd: -1, poll: -1}}
	if err := p.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open RDMA port %s: %w", c.Name, err), p.Close())
	}
	return p, nil
}

func (p *Port) open() (err error) {
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
		p.event.onArm = c.OnArm
		return p.event.open(c.SendCQ, c.ReceiveCQ)
	}
	return nil
}

// Attach adds a queue pair to a port with a shared receive queue, and returns its number. The port
// owns the queue pair from then on, unless there is an error.
func (p *Port) Attach(q Peer) (int, error) {
	if p.config.Shared == nil && p.receive.target != nil {
		return 0, fmt.Errorf("queue pair %d: RDMA port %s has no shared receive queue, and so only one queue pair", q.QueuePair.QPN(), p.config.Name)
	}
	if err := errors.Join(p.config.checkPeer(q), p.checkKind(q)); err != nil {
		return 0, fmt.Errorf("queue pair %d: %w", q.QueuePair.QPN(), err)
	}
	s := newSender(q, p.config.Memory, &p.stats.Own)
	p.rename(s.qpn)
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

// rename takes its number from a queue pair that was closed after Part, if a new one has that number.
func (p *Port) rename(qpn uint32) {
	for _, s := range p.senders {
		if s != nil && s.parted && s.qpn == qpn {
			p.collect() // takes its completions
			s.qpn = 0   // which no such queue pair has
		}
	}
}

// maxPeers is how many queue pairs Side.Queue can distinguish, with one value left for none.
const maxPeers = 1<<16 - 1

// checkKind refuses to mix datagrams and other messages: they begin at different offsets of a
// receive.
func (p *Port) checkKind(q Peer) error {
	if datagrams := q.QueuePair.Config().Transport == rdma.UD; datagrams != p.config.Datagrams {
		return fmt.Errorf("it is of %v, and the port's Datagrams is %v", q.QueuePair.Config().Transport, p.config.Datagrams)
	}
	return nil
}

// Part ends posting to a queue pair, and returns a function that closes it. Any goroutine may call the
// function, once, and Detach must follow. Closing can take long: Soft-RoCE waits up to 50 s for packets to a
// host that is gone (__rxe_cleanup, drivers/infiniband/sw/rxe/rxe_pool.c), and the worker must not.
func (p *Port) Part(number int) (closeQueue func() error, err error) {
	s := p.senderOf(number)
	if s == nil {
		return nil, fmt.Errorf("RDMA port %s: there is no queue pair number %d", p.config.Name, number)
	}
	s.parted = true
	return s.close, nil
}

// Detach closes a queue pair, unless it was closed after Part. Reap returns the frames that it had to send,
// with ECANCELED unless they have a status. Its own receives stay with the port until Close.
func (p *Port) Detach(number int) error {
	s := p.senderOf(number)
	if s == nil {
		return fmt.Errorf("RDMA port %s: there is no queue pair number %d", p.config.Name, number)
	}
	p.collect()
	if err := s.close(); err != nil {
		return err
	}
	p.collect() // takes its completions: another queue pair may get its number
	s.closed = true
	s.fail(s.head, s.tail, unix.ECANCELED)
	p.stats.retire(s, s.tail, &p.drained)
	p.senders[number] = nil
	p.broken = slices.DeleteFunc(p.broken, func(n int) bool { return n == number })
	p.byQPN.set(p.senders)
	p.tell(true)
	return nil
}

// senderOf returns the sender of a queue pair by number, nil if there is none.
func (p *Port) senderOf(number int) *sender {
	if number < 0 || number >= len(p.senders) {
		return nil
	}
	return p.senders[number]
}

// Cause returns the first failed completion of a queue pair, or nil.
func (p *Port) Cause(number int) error {
	s := p.senderOf(number)
	if s == nil || s.cause.Status == rdma.Success {
		return nil
	}
	cause := s.cause
	return &cause
}

// Kick posts what Supply, Send and SendControl queued, in one call for each queue.
func (p *Port) Kick() error {
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

// postAll posts all queued requests. The next Kick retries those that the device does not take.
func (p *Port) postAll() error {
	var errs []error
	left := p.waiting[:0]
	for _, s := range p.waiting {
		if s.closed || s.parted {
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

// queue adds a sender to the senders that Kick posts.
func (p *Port) queue(s *sender) {
	if !s.waits {
		s.waits = true
		p.waiting = append(p.waiting, s)
	}
}

// fault returns an error of polling.
func (p *Port) fault() error {
	if err := errors.Join(p.sent.err, p.came.err, p.event.err); err != nil {
		return fmt.Errorf("RDMA port %s: %w", p.config.Name, err)
	}
	return nil
}

// Arm makes FD poll readable at the next completion, with Config.OnArm. It reports whether Recv or Reap has something to
// return already.
func (p *Port) Arm() (ready bool) { return p.event.arm(&p.sent, &p.came, p.drained.len() > 0) }

// Wake makes FD poll readable until the next verb. It does nothing with Config.OnArm.
func (p *Port) Wake() {
	if p.event.poll >= 0 && !p.event.onArm {
		p.event.show(true)
	}
}

// FD polls readable while Recv or Reap has something to return, or a completion of SendControl
// waits for Reap; -1 without Events, and after Close.
func (p *Port) FD() int { return p.event.poll }

// Limits returns the port's limits. The port holds at most as many frames for sending as its send
// completion queue has entries, and for each queue pair as many messages as its send queue has
// entries.
func (p *Port) Limits() umem.Limits {
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

// Close destroys the queue pairs and returns every frame to the region. After an error it may be
// called again.
func (p *Port) Close() error {
	if p.gone {
		return nil
	}
	p.closed = true
	if err := p.closeParts(); err != nil {
		// The region does not get the frames back: the device may still write to them.
		return fmt.Errorf("close RDMA port %s: %w", p.config.Name, err)
	}
	p.gone = true
	if p.holder != nil {
		p.holder.Close()
	}
	return nil
}

func (p *Port) closeParts() error {
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

func closeQueues(queues ...rdma.CompletionQueue) error {
	var errs []error
	for _, q := range queues {
		if q != nil {
			errs = append(errs, q.Close())
		}
	}
	return errors.Join(errs...)
}

// Config has the parts of a port. The port owns all of them except Worker and Memory, and closes
// them, even if Open fails.
type Config struct {
	Name   string            // for errors and status
	Worker *umem.Holder      // holds the frames outside the port
	Memory rdma.MemoryRegion // of the worker's region, with LocalWrite; closed after the port

	SendCQ    rdma.CompletionQueue
	ReceiveCQ rdma.CompletionQueue // not SendCQ
	// Shared holds the receives of all queue pairs. Without it there is one queue pair, with
	// receives of its own.
	Shared rdma.SharedReceiveQueue
	// QueuePairs are the first ones; Attach adds more.
	QueuePairs []Peer

	// Datagrams says that the queue pairs are UD. A port cannot have both UD and other ones.
	Datagrams bool
	// Landing is the offset of a message in a supplied frame or extent.
	// The network header of a datagram lies before it and needs rdma.GRHBytes.
	Landing uint32
	// Spread makes messages begin at different multiples of 4096 bytes after Landing, in
	// extents that have room for it. It is the length of the longest message including its
	// landing. The length of an extent is a power of two, so messages that all begin at its
	// start would share few sets of the processor's caches. 0: always at Landing.
	Spread uint64
	// Events makes FD poll readable for completions, at the cost of arming the queues.
	Events bool
	// OnArm leaves the queues as they are until Arm, for a caller that polls and only now and then waits for FD.
	OnArm bool
}

// Peer is a queue pair and, for datagrams, the destination.
type Peer struct {
	QueuePair rdma.QueuePair
	Handle    rdma.AddressHandle // owned by the port, too; nil for RC and UC
	QPN, QKey uint32             // of the peer; datagrams only
	// Message is the longest message in bytes: the port's maximum, or the MTU for datagrams.
	Message uint64
	// Grants are the peer's grants that are made with the queue pair; nil: none. The port
	// processes their completions, and keeps room for their requests in the send queue. The
	// caller closes them before the queue pair.
	Grants *mr.Cache
}

func (c *Config) check() error {
	var errs []error
	need := func(ok bool, text string) {
		if !ok {
			errs = append(errs, errors.New(text))
		}
	}
	need(c.Worker != nil, "no Worker")
	need(c.Memory != nil && c.Memory.Access()&rdma.LocalWrite != 0, "no Memory that may be written locally")
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

// checkPeer refuses a queue pair that the port cannot work with.
func (c *Config) checkPeer(q Peer) error {
	g := q.QueuePair.Config()
	switch {
	case g.Transport == rdma.UD && c.Landing < rdma.GRHBytes:
		return fmt.Errorf("the landing %d has no room for the network header of datagrams: it must be at least %d", c.Landing, rdma.GRHBytes)
	case g.Transport == rdma.UD && q.Handle == nil:
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

// SendControl queues a SEND of bytes at an address of the region. The caller owns the bytes, and
// Reap returns no frame for them. They must not change until UnderWay says that the request is
// done. If told is false, the request counts as done when a later signaled one completes. Each
// signalEvery-th request, and one that fills the queue, is always signaled. SendControl returns
// false if there is no room now, or no such queue pair. Stats do not count such messages.
func (p *Port) SendControl(number int, addr uint64, length uint32, told bool) bool {
	s := p.senderOf(number)
	if p.closed || s == nil || s.parted {
		return false
	}
	if s.full() {
		p.collect()
	}
	if s.full() {
		return false
	}
	s.control(s.form, addr, length)
	if last := &s.queued[len(s.queued)-1]; (told || s.full()) && last.Flags&rdma.Signaled == 0 {
		s.signal(last)
	}
	p.queue(s)
	return true
}

// UnderWay returns how many requests of a queue pair are not known to be done, according to the
// completions processed so far.
func (p *Port) UnderWay(number int) int {
	if s := p.senderOf(number); s != nil {
		return s.underWay()
	}
	return 0
}

// Broken returns the numbers of queue pairs on which a SendControl failed, each once, and their
// count. Cause says why.
func (p *Port) Broken(dst []int) int {
	n := copy(dst, p.broken)
	p.broken = p.broken[:copy(p.broken, p.broken[n:])]
	return n
}

// breaks records a failed request that has no frame to report the failure.
func (p *Port) breaks(number int, c *rdma.WorkCompletion) {
	s := p.senders[number]
	if _, _, frames := readID(c.ID); c.Status != rdma.Success && frames == 0 && !s.broken {
		s.broken = true
		p.broken = append(p.broken, number)
	}
}

// stats are the counters of a port. Its thread publishes them once per batch.
type stats struct {
	counter.Published[Counts]
	statuses [rdma.Statuses]atomic.Uint64
}

func (s *stats) sentOne(f umem.Frame) {
	s.Own.BytesSent += uint64(f.Len)
	if !f.Continues() {
		s.Own.Sent++
	}
}

// failed counts a failed completion.
func (s *stats) failed(status rdma.Status) { s.statuses[min(status, rdma.General)].Add(1) }

// Counts are numbers of a port since it was opened.
type Counts struct {
	Received, BytesReceived uint64 // messages, and bytes of them
	Immediates              uint64 // messages with an immediate
	Sent, BytesSent         uint64 // messages that completed, and bytes of them
	Refused                 uint64 // messages that can never be sent
	Inlined                 uint64 // bytes copied into work requests, see rdma.Inline
}

// Stats are the counters of a port.
type Stats struct {
	Counts
	Failed map[rdma.Status]uint64 // failed completions
}

// Stats may be called from any goroutine.
func (p *Port) Stats() Stats { return p.stats.read() }

func (s *stats) read() Stats {
	out := Stats{s.Load(), map[rdma.Status]uint64{}}
	for status := range s.statuses {
		if n := s.statuses[status].Load(); n > 0 {
			out.Failed[rdma.Status(status)] = n
		}
	}
	return out
}
