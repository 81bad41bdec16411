package stream

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// ReceiverConfig says what a Receiver takes. Permit, Next, Events and Log may be left out.
type ReceiverConfig struct {
	Name     string // for people
	Endpoint *Endpoint
	// Worker has the frames that are passed in and come out, and is of the Endpoint's region.
	Worker *umem.Holder
	// Flow is what peers must ask for; one that names no flow gets this.
	Flow string
	// Message is the longest message in bytes, header included. Each supplied frame or extent has room for it behind Landing.
	Message uint32
	// Window is how many messages a peer may have under way.
	Window int
	// Unacknowledged is how many messages a session may have sent, or be promised, beyond those that are acknowledged; 0: no
	// bound. It is for flows that need messages of all peers to give frames back.
	Unacknowledged int
	// Peers is how many there may be at once.
	Peers int
	// Landing is where in a frame or extent a message lands, bytes from its start.
	Landing uint32
	// Spread has messages land at different places behind Landing, where extents have room for more (rdma.PortConfig.Spread).
	Spread bool
	// Durability is what Acknowledge will mean.
	Durability protocol.Durability
	// Check has payloads compared with their checksums.
	Check bool
	// Write has peers write their messages (WRITE with immediate) into frames that are granted to them one by one, instead of sending them.
	// It takes another Peers times Window frames, and Check: else a peer could pass off as its message what lay in a frame before.
	Write bool
	// Permit refuses a peer with an error, whose text the peer gets. Nil permits all. It is called by several goroutines.
	Permit func(peer connect.Peer, h protocol.Hello) error
	// AllowAnyGID lets peers have their queue pairs at other addresses than they connect from.
	AllowAnyGID bool
	// Next is the sequence expected next of a session that this Receiver does not know (yet, or any more): what was
	// acknowledged in an earlier run, and one. The error refuses a session that is not the owner's. Nil is 1. It is called on the worker's thread and must not block.
	Next func(session uint64, owner string) (uint64, error)
	// Forgotten is called when a session gives its place to a new one: up to which sequence it is acknowledged. From then on Next is asked for it. It is called on
	// the worker's thread, and must not block.
	Forgotten func(session uint64, owner string, acknowledged uint64)
	// Resume has a session that this Receiver does not know, nor Next, go on where its sender says, for who keeps no messages and passes them on with
	// their origins: what the sender has acknowledged is elsewhere.
	Resume bool
	// Origins has messages with an origin taken. Who gets them takes each origin's once.
	Origins bool
	// Participants is how many senders there are whose messages are combined; 0: they are not. Each must say who it is, by its certificate or the number in
	// its hello, has one session at a time, and keeps its index when it begins a new one. A session of an earlier run is refused, unless nothing of it is acknowledged.
	Participants int
	// Joins is called when the participant of an index begins a session. It is called on the worker's thread, and must not block.
	Joins func(index int)
	// Events makes FD tell of messages.
	Events bool
	Log    *slog.Logger // peers that come and go; nil: nowhere
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

// hello is what the receiver says of a session.
func (c *ReceiverConfig) hello(session, next uint64, window uint32) protocol.Hello {
	h := protocol.Hello{Role: protocol.RoleAppend, Flow: c.Flow, Message: c.Message, Window: window, Durability: c.Durability, Session: session, Next: next}
	if c.Write {
		h.Capabilities = protocol.CapabilityWrite
	}
	if c.Origins {
		h.Capabilities |= protocol.CapabilityOrigin
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
