package flows

import (
	"context"
	"fmt"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// layoutExtents are left to what else of a flow needs some.
const layoutExtents = 4

// landing is where messages land in a frame or extent: a block header fits in front of
// them, where direct I/O may begin.
const landing = pcapng.PacketHeaderLen

// inboxConfig is what an inbox is to be beside what clients are told in the configuration.
type inboxConfig struct {
	away       int // frames of messages that the rest of the flow may have, at least
	wish       int // and at most
	durability protocol.Durability
	spread     bool                  // messages may land anywhere in extents
	joins      func(participant int) // of flows that combine messages of all clients, who are acknowledged together and must not run ahead of each other for long
	next       func(session uint64, owner string) (uint64, error)
	forgotten  func(session uint64, owner string, acknowledged uint64)
	resume     bool // a session that is not known goes on where its client says: messages are elsewhere
	origins    bool // messages of relays have their origins, and are taken once
}

// openInbox opens the end at which messages arrive, and has room made for them.
func (b *inbox) openInbox(o *opening, c inboxConfig) error {
	from := &o.flow.From
	var err error
	if b.device, err = o.useDevice(from.RDMA); err != nil {
		return err
	}
	if err := b.makeRoom(o, c); err != nil {
		return err
	}
	unacknowledged, participants := 0, 0
	if c.joins != nil {
		unacknowledged, participants = from.Window, from.Clients
	}
	b.receiver, err = stream.OpenReceiver(stream.ReceiverConfig{
		Unacknowledged: unacknowledged,
		Name:           "flow " + o.flow.Name, Endpoint: b.device.Endpoint, Worker: o.hands, Flow: o.flow.Name,
		Message: protocol.HeaderLen + uint32(from.Message), Window: from.Window, Peers: from.Clients, Landing: landing, Spread: c.spread,
		Durability: c.durability, Check: from.Verify, Write: from.Method == config.MethodWrite, Permit: device.Permit(from.Allow), AllowAnyGID: from.AllowAnyGID, Next: c.next, Forgotten: c.forgotten, Resume: c.resume, Origins: c.origins,
		Participants: participants, Joins: c.joins,
		Events: o.worker.Config().Wait == config.WaitPoll, Log: o.log,
	})
	if err != nil {
		return err
	}
	o.undo.add(b.receiver.Close)
	b.do, b.method = o.worker.Do, from.Method
	return b.listen(o)
}

// makeRoom takes the frames, or extents, that messages land in: as many as clients may send
// without waiting, so that a new client finds a receive whatever the others do, and those
// that the rest of the flow has meanwhile.
func (b *inbox) makeRoom(o *opening, c inboxConfig) error {
	from := &o.flow.From
	b.window = from.Window * from.Clients
	least, want := b.window+c.away, b.window+c.wish
	b.each = 1
	take, share, what := o.hands.Take, o.shared.frames, "frames"
	if !inFrames(o.region, from.Message) {
		b.each = int(o.region.ExtentSize() / uint64(o.region.FrameSize()))
		take, share, what = o.hands.TakeExtents, o.shared.extents-layoutExtents, "extents"
	}
	if what == "extents" { // those are few: clients then have less than their window at once, and one each at least
		least = from.Clients + c.away
	}
	frames := make([]umem.Frame, min(want, max(least, share)))
	b.total = take(frames)
	b.spare = umem.NewFreeList(frames[:b.total])
	if b.total < least {
		return fmt.Errorf("the region has %d free %s for messages; %d clients with a window of %d need %d at least, and what becomes of their messages %d of those: raise region.size or region.extents, or lower clients or window",
			b.total, what, from.Clients, from.Window, least, c.away)
	}
	b.long, b.hands = what == "extents", o.hands
	away := c.away
	if b.long {
		away = c.share(b.total - from.Clients)
	}
	b.window = min(b.window, b.total-away)
	b.least = b.window + away
	return nil
}

// share is how many extents, of so many that clients are not sure of, the rest of the flow may have: with few of them a round takes few messages,
// and each round ends with a call of the kernel.
func (c *inboxConfig) share(free int) int { return max(c.away, min(c.wish, free/2)) }

// inFrames reports whether messages with such payloads land in frames. Longer ones do in
// extents.
func inFrames(r *umem.Region, message config.Size) bool {
	return (&config.Region{Frame: int(r.FrameSize())}).InFrame(message)
}

// listen has clients wait at the address until the flow begins.
func (b *inbox) listen(o *opening) (err error) {
	b.secure = o.shared.credentials != nil
	c := connect.Config{Credentials: o.shared.credentials}
	if b.listener, err = connect.Listen(context.Background(), o.flow.From.Listen, c); err != nil {
		return err
	}
	o.undo.add(b.listener.Close)
	o.undo.add(b.serving.wait)
	return nil
}
