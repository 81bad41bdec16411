package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// ReceiverConfig configures a Receiver. Permit, Next, Events and Log are optional.
type ReceiverConfig struct {
	Name     string // for logs, errors and status
	Endpoint *Endpoint
	// Others are further devices of the same region over which peers can connect. A session may move from one to
	// another. They are not for flows that combine messages, and not for members of a group.
	Others []*Endpoint
	// Worker holds the frames that Supply takes and Recv returns. It belongs to the Endpoint's region.
	Worker *umem.Holder
	// Flow is the name that peers must ask for. A peer that names no flow gets this one.
	Flow string
	// Message is the longest message in bytes, header included. Each supplied frame or extent has
	// room for it from Landing on.
	Message uint32
	// Window is how many messages a peer may have in flight.
	Window int
	// Unacknowledged limits the messages of a session that are sent or promised and not
	// acknowledged; 0: no limit. It is for flows that give frames back only when they have messages
	// of all peers.
	Unacknowledged int
	// Peers is the largest number of peers at a time.
	Peers int
	// Landing is the offset of a message in a frame or extent.
	Landing uint32
	// Spread lets messages land at different offsets from Landing on, if extents have room for that
	// (msg.Config.Spread).
	Spread bool
	// Durability is what an acknowledgement means.
	Durability protocol.Durability
	// Check verifies the checksums of payloads.
	Check bool
	// Write makes peers write their messages (WRITE with immediate) into frames, instead of sending
	// them. The receiver grants the frames one by one. Write takes another Peers times Window
	// frames. It requires Check: otherwise a peer could pass off old contents of the frame as its
	// message.
	Write bool
	// Permit refuses a peer by returning an error, whose text the peer gets. Nil permits all.
	// Several goroutines call it.
	Permit func(peer connect.Peer, h protocol.Hello) error
	// AllowAnyGID lets a peer's queue pair have another address than its connection.
	AllowAnyGID bool
	// Next returns the next sequence of a session that this Receiver does not know, because it is
	// from an earlier run or was forgotten. That is one past the last acknowledged sequence. An
	// error refuses a session of another owner. A nil Next means 1. It is called on the worker's
	// thread and must not block.
	Next func(session uint64, owner string) (uint64, error)
	// Forgotten is called when the receiver forgets a session, with its last acknowledged sequence.
	// From then on the receiver calls Next for it. Forgotten is called on the worker's thread, and
	// must not block.
	Forgotten func(session uint64, owner string, acknowledged uint64)
	// Resume lets a session that neither this Receiver nor Next knows continue at the sequence that
	// its sender states. It is for a flow that keeps no messages and passes them on with their
	// origins: acknowledged messages are elsewhere.
	Resume bool
	// Origins accepts messages with an origin. The flow must accept each origin's messages only
	// once.
	Origins bool
	// Participants is the number of senders whose messages are combined; 0: messages are not
	// combined. Each must identify itself by its certificate or the number in its hello, has one
	// session at a time, and keeps its index in a new session. The receiver refuses a session of an
	// earlier run if any of its messages is acknowledged.
	Participants int
	// Joins is called when the participant with an index begins a session. It is called on the
	// worker's thread and must not block.
	Joins func(index int)
	// Replicate gets the requests of members of the flow's group, which are no senders: it answers them. device is the
	// number of the one that they came over, from 0. Nil refuses them. Several goroutines call it.
	Replicate func(device int, q *connect.Request, h *protocol.Hello)
	// Standby waits until the member of a group that the flow is takes messages. The error says that ctx has ended, or
	// that it never will. Nil: the flow is no member. Several goroutines call it.
	Standby func(ctx context.Context) error
	// Events makes FD poll readable for messages.
	Events bool
	// OnArm makes FD poll readable after Arm only, for a caller that polls and only now and then waits.
	OnArm bool
	Log   *slog.Logger // connects and disconnects; nil: no log
}

// orders reports whether the messages of a session may come over several paths at the same time. A flow that combines
// messages counts the messages of each connection, and memory is granted for messages in their order.
func (c *ReceiverConfig) orders() bool {
	return !c.Write && c.Participants == 0 && c.Unacknowledged == 0 && c.Standby == nil
}

// Limits of a Receiver. The sum of all windows must fit a receive queue.
const (
	maxWindow = 1 << 14
	maxPeers  = 1 << 12
)

func (c *ReceiverConfig) check() error {
	switch {
	case c.Endpoint == nil || c.Worker == nil:
		return errors.New("it needs an Endpoint and a Worker")
	case len(c.Others) > 0 && c.Participants > 0:
		return errors.New("a flow that combines messages has one device")
	case c.Worker.Book().Region() != c.Endpoint.Region:
		return errors.New("the Worker's region is not the Endpoint's")
	case c.Window < 1 || c.Window > maxWindow:
		return fmt.Errorf("the window of %d messages is not between 1 and %d", c.Window, maxWindow)
	case c.Peers < 1 || c.Peers > maxPeers:
		return fmt.Errorf("the number of peers %d is not between 1 and %d", c.Peers, maxPeers)
	case c.Message < protocol.HeaderLen:
		return fmt.Errorf("messages of %d bytes have no room for their header of %d", c.Message, protocol.HeaderLen)
	}
	if c.Write && !c.Check {
		return errors.New("messages that are written must be checked, too: set Check")
	}
	hello := c.hello(1, 1, 0)
	if _, err := hello.Append(nil); err != nil {
		return err
	}
	return c.checkRoom()
}

// checkRoom refuses messages that fit neither frames nor extents.
func (c *ReceiverConfig) checkRoom() error {
	r := c.Endpoint.Region
	room := uint64(r.FrameSize())
	if r.Extents() > 0 {
		room = max(room, r.ExtentSize())
	}
	if need := uint64(c.Landing) + uint64(c.Message); need > room {
		return fmt.Errorf("messages of %d bytes that land at %d do not fit %d bytes, the largest frame or extent of the region", c.Message, c.Landing, room)
	}
	return nil
}

// hello returns the hello for a session.
func (c *ReceiverConfig) hello(session, next uint64, window uint32) protocol.Hello {
	h := protocol.Hello{Role: protocol.RoleAppend, Flow: c.Flow, Message: c.Message, Window: window, Durability: c.Durability, Session: session, Next: next}
	if c.Write {
		h.Capabilities = protocol.CapabilityWrite
	}
	if c.Origins {
		h.Capabilities |= protocol.CapabilityOrigin
	}
	if c.Endpoint.Device.Capabilities().MaxRemoteReads > 0 {
		h.Capabilities |= protocol.CapabilityProbe
	}
	return h
}

func (c *ReceiverConfig) setDefaults() {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Next == nil {
		c.Next = func(uint64, string) (uint64, error) { return 1, nil }
	}
	if c.Forgotten == nil {
		c.Forgotten = func(uint64, string, uint64) {}
	}
	if c.Joins == nil {
		c.Joins = func(int) {}
	}
	if c.Permit == nil {
		c.Permit = func(connect.Peer, protocol.Hello) error { return nil }
	}
}
