package rdma

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/umem"
)

// WritePort is WRITE with immediate as a umem.Port, in both directions over one RC queue pair, with a
// WritePort at its other end. Supply grants an empty frame or extent to the peer and tells it
// by a credit; the peer's Send has its device write a message into the frame for the next credit, gathered
// from a chain, and Recv gives the frame. What no credit is there for waits in the port.
//
// RC alone: with UC a message that loses a packet would take its credit with it, and in
// the end all of them.
//
// A slot holds the longest message, so credits are taken in order. The receives that SENDs of credits and
// immediates take are small buffers in frames of the port's own; there are as many as
// both ends can have under way, so neither ever waits for a receive.
//
// What the peer can do. Rights are to write, to the part of a frame that a message may
// take up, and only as long as the grant is there. Without Strict a frame that Recv gave is still
// granted: the peer's credit for it is used, and a WritePort does not write again, but a hostile peer could, until
// the port is closed, the connection fails, or the grant is revoked for want of room. With Strict the grant is
// revoked before Recv gives the frame, which takes two more work requests a message, or two system calls
// where the device has no memory windows. In both cases the device tells how much the peer wrote with the immediate
// and not where: a hostile peer may have written to another of its slots, and the frame then has the
// bytes it had when it was supplied.
//
// What the peer says is checked: a credit that is malformed, for a slot that does not exist or has a
// credit already, or too short, and an immediate for a slot that is not granted, are the end of the connection.
// So is any completion that did not succeed. Then Cause says why, Kick gives it as its error, all frames
// come back from Reap and Recv, those that hold no message with ECANCELED, and the port takes no more.
//
// Side entries are left as they are.
type WritePort struct {
	config  WriteConfig
	region  *umem.Region
	worker  *umem.Holder
	holder  *umem.Holder // control buffers, and frames to be sent
	granted *umem.Holder // supplied frames
	out     *sender
	grants  *Grants
	control control
	slots   slots
	theirs  credits
	arrived frameQueue // messages to be received, and frames that failed
	leaving frameQueue // messages whose grants are being revoked
	asked   uint32     // of those, up to where Revoke was called
	drained frameQueue
	sent    completions
	came    completions
	event   portEvent
	stats   portStats
	held    int // frames supplied, received ones not
	sending int // frames sent, reaped ones not
	sendMax int
	cause   error
	closed  bool
	gone    bool // and closed altogether
}

var _ umem.Port = (*WritePort)(nil)

// OpenWritePort makes a port of a queue pair in RTR or RTS. It posts all receives: connect both
// queue pairs, open both ports, and only then Kick. It may be called on any thread.
func OpenWritePort(c WriteConfig) (*WritePort, error) {
	p := &WritePort{config: c, event: portEvent{fd: -1, poll: -1}}
	if err := p.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open RDMA port %s: %w", c.Name, err), p.Close())
	}
	return p, nil
}

func (p *WritePort) open() (err error) {
	c := &p.config
	if err := c.check(); err != nil {
		return err
	}
	book := c.Worker.Book()
	p.worker, p.region = c.Worker, book.Region()
	if p.holder, err = book.NewHolder(umem.OwnerRDMA, "RDMA port "+c.Name); err != nil {
		return err
	}
	if p.granted, err = book.NewHolder(umem.OwnerGranted, "granted by RDMA port "+c.Name); err != nil {
		return err
	}
	p.makeQueues()
	if p.grants, err = NewGrants(GrantsConfig{QueuePair: c.QueuePair, Domain: c.Domain, Region: p.region, Memory: c.Memory,
		Most: c.Slots + c.Kept, Requests: grantRequests, Register: c.Register}); err != nil {
		return err
	}
	if err := p.control.open(p.region, p.holder, c); err != nil {
		return err
	}
	if c.Events {
		return p.event.open(c.SendCQ, c.ReceiveCQ)
	}
	return nil
}

func (p *WritePort) makeQueues() {
	c := &p.config
	p.sent.queue, p.came.queue = c.SendCQ, c.ReceiveCQ
	p.out = newSender(Peer{QueuePair: c.QueuePair, Message: uint64(c.Message)}, c.Memory, &p.stats.count)
	p.sendMax = min(c.QueuePair.Config().SendDepth, 1<<15) - reserve
	p.out.room -= grantRequests + 1
	p.drained = newFrameQueue(p.sendMax)
	p.slots, p.theirs = newSlots(c.Slots), newCredits(c.PeerSlots)
	p.arrived, p.leaving = newFrameQueue(c.Slots), newFrameQueue(c.Slots)
}

// Windows reports whether grants are memory windows; else they are registrations.
func (p *WritePort) Windows() bool { return p.grants.Windows() }

// Cause is why the connection failed, or nil.
func (p *WritePort) Cause() error { return p.cause }

// Stats may be called from any goroutine. Of messages sent, those that were refused were
// too long.
func (p *WritePort) Stats() (PortStats, GrantStats) { return p.stats.read(), p.grants.Stats() }

// FD polls readable while Recv or Reap has something to give, or Kick something to do; -1
// without Events, and after Close.
func (p *WritePort) FD() int { return p.event.poll }

// Limits says what the port can take.
func (p *WritePort) Limits() umem.Limits {
	return umem.Limits{Message: uint64(p.config.Message), Frames: min(p.config.QueuePair.Config().SendSGEs, p.sendMax), Supply: p.config.Slots, Send: p.sendMax}
}

// Close destroys the queue pair and ends all grants, and gives every frame to the pool.
// After an error it may be called again.
func (p *WritePort) Close() error {
	if p.gone {
		return nil
	}
	p.closed = true
	if err := p.closeParts(); err != nil {
		// The peer may still write to frames: they are not given back.
		return fmt.Errorf("close RDMA port %s: %w", p.config.Name, err)
	}
	p.gone = true
	for _, h := range []*umem.Holder{p.holder, p.granted} {
		if h != nil {
			h.Close()
		}
	}
	return nil
}

func (p *WritePort) closeParts() error {
	errs := []error{p.event.close()}
	if p.grants != nil { // whose windows go before the queue pair
		errs = append(errs, p.grants.Close())
	}
	if p.config.QueuePair != nil {
		errs = append(errs, p.config.QueuePair.Close())
	}
	return errors.Join(append(errs, closeQueues(p.config.SendCQ, p.config.ReceiveCQ))...)
}

// fail ends the connection. Frames come back once neither the device nor the peer can reach them.
func (p *WritePort) fail(cause error) {
	if p.cause != nil || p.closed {
		return
	}
	p.cause = cause
	err := p.config.QueuePair.Modify(Attributes{State: Error}, MaskState)
	if err == nil {
		err = p.grants.Close()
	}
	if err != nil {
		p.cause = errors.Join(cause, err) // the rest comes back when the port is closed
		return
	}
	p.flushSends()
	p.flushSlots()
}

// flushSends has all that is queued fail, and one request more, which is the last.
func (p *WritePort) flushSends() {
	p.out.control(SendRequest{Op: Send}, p.control.at(0), 0)
	p.out.signal(&p.out.queued[len(p.out.queued)-1])
	if err := p.out.post(); err != nil {
		p.cause = errors.Join(p.cause, err)
	}
}

// flushSlots has supplied frames received: messages as they are, the others failed.
func (p *WritePort) flushSlots() {
	for f := [1]umem.Frame{}; p.leaving.pop(f[:]) == 1; {
		p.arrived.push(f[0])
	}
	for n := range p.slots.list {
		if s := &p.slots.list[n]; s.used {
			s.used = false
			p.arrived.push(umem.Frame{Addr: s.addr}.WithError(unix.ECANCELED))
		}
	}
}

// WriteConfig says what a WritePort is made of. QueuePair and completion queues are the port's from
// OpenWritePort on, which closes them also when it returns an error.
type WriteConfig struct {
	Name   string       // for people
	Worker *umem.Holder // who passes frames in and is passed those that come out
	Domain ProtectionDomain
	// Memory is the worker's whole region, with LocalWrite, and BindWindows where grants are to
	// be windows; it outlives the port.
	Memory    MemoryRegion
	QueuePair QueuePair // RC, of depths that WriteDepths gives, whose peer may write
	SendCQ    CompletionQueue
	ReceiveCQ CompletionQueue // another one

	// What both ends agree on: Message is the longest message in bytes, either way; Slots is how many
	// frames may be granted to the peer at once, PeerSlots what the peer calls Slots.
	Message          uint32
	Slots, PeerSlots int

	// Landing is where in a supplied frame or extent a message lands, bytes from its start.
	Landing uint32
	// Kept is how many grants are kept beyond Slots, for frames that are not supplied at
	// the moment.
	Kept int
	// Strict has Recv give frames that the peer can no longer write to.
	Strict bool
	// Register has grants be registrations also where the device has memory windows.
	Register bool
	// Events makes FD tell of completions, at the price of arming the queues.
	Events bool
}

const (
	// creditSends is how many SENDs of credits may be under way.
	creditSends = 2 * signalEvery
	// grantRequests is how many work requests the grants may have under way.
	grantRequests = 64
	// reserve is what of the send queue messages do not take: for SENDs of credits, requests
	// that are done and of which nothing is known for want of a signaled one, grants, and the last one.
	reserve = creditSends + signalEvery + grantRequests + 1
)

// WriteDepths are the depths a WritePort's queue pair and completion queues need, for so
// many messages to be sent at once.
func WriteDepths(messages, slots, peerSlots int) (send, receive int) {
	return messages + reserve, slots + peerSlots
}

func (c *WriteConfig) check() error {
	var errs []error
	need := func(ok bool, text string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(text, args...))
		}
	}
	need(c.Worker != nil && c.Domain != nil && c.QueuePair != nil, "no Worker, Domain or QueuePair")
	need(c.Memory != nil && c.Memory.Access()&LocalWrite != 0, "no Memory that may be written locally")
	need(c.SendCQ != nil && c.ReceiveCQ != nil && c.SendCQ != c.ReceiveCQ, "it needs two completion queues")
	need(c.Slots > 0 && c.PeerSlots > 0 && c.Slots <= 1<<16 && c.PeerSlots <= 1<<16, "%d and %d slots: 1 to %d of each are possible", c.Slots, c.PeerSlots, 1<<16)
	need(c.Message > 0, "the longest message is not set")
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return errors.Join(c.checkRoom(), c.checkQueues())
}

func (c *WriteConfig) checkRoom() error {
	r := c.Worker.Book().Region()
	most := uint64(r.FrameSize())
	if r.Extents() > 0 {
		most = r.ExtentSize()
	}
	if uint64(c.Landing)+uint64(c.Message) > most {
		return fmt.Errorf("messages of %d bytes at a landing of %d do not fit into a frame or extent, of at most %d bytes", c.Message, c.Landing, most)
	}
	return nil
}

func (c *WriteConfig) checkQueues() error {
	g := c.QueuePair.Config()
	send, receive := WriteDepths(1, c.Slots, c.PeerSlots)
	switch {
	case g.Transport != RC:
		return fmt.Errorf("its queue pair is of %v: it must be RC", g.Transport)
	case g.Shared != nil:
		return errors.New("its queue pair has a shared receive queue: it must have its own")
	case g.SendCQ != c.SendCQ || g.ReceiveCQ != c.ReceiveCQ:
		return errors.New("its completion queues are not the port's")
	case g.SendDepth < send || g.RecvDepth < receive:
		return fmt.Errorf("its queue pair has room for %d sends and %d receives: at least %d and %d are needed", g.SendDepth, g.RecvDepth, send, receive)
	case c.SendCQ.Depth() < g.SendDepth || c.ReceiveCQ.Depth() < receive:
		return fmt.Errorf("its completion queues have room for %d and %d: at least %d and %d are needed", c.SendCQ.Depth(), c.ReceiveCQ.Depth(), g.SendDepth, receive)
	}
	return nil
}
