package rdma

import (
	"errors"
	"fmt"

	"github.com/unifiedd/unifiedd/umem"
)

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
