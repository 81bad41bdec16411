package rdma

import (
	"errors"
	"fmt"

	"github.com/unifiedd/unifiedd/umem"
)

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
