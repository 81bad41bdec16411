package message

import (
	"context"
	"fmt"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

const (
	// layoutExtents is the number of extents that are left to a packed layout.
	layoutExtents = 4
	// landing is the offset in a frame or extent at which messages land. There is space for a block
	// header before it, at an offset where direct I/O may begin.
	landing = pcapng.PacketHeaderLen
)

// Config is what a source needs in addition to the configuration of its flow.
type Config struct {
	MinReserve int // frames or extents that the rest of the flow needs
	MaxReserve int // and the most that it can use
	Durability protocol.Durability
	Spread     bool   // messages may land anywhere in an extent
	Numbered   bool   // messages get positions
	Before     uint64 // position before that of the first message, if it is not a log
	Log        *Log   // nil: not a log
	Relay      bool   // messages without an acknowledgement count as lost at the end
	Resume     bool   // an unknown session continues where its client says
	Origins    bool   // relays name the origins of their messages
	// Part is memory of an attached program, in which messages land; nil: the region's frames.
	Part *umem.Part
	// Member makes the source one of a member of a group, which takes messages only while it leads.
	Member *Member

	// Joins is called for each participant that begins a session, in flows that combine the messages
	// of all clients. No participant may be ahead of the acknowledgements by more than its window.
	Joins func(participant int)
}

// Log is a log to which messages are appended.
type Log struct {
	Acknowledge config.Acknowledge
	End         journal.End // of the log when the run begins
}

// Member is what the source of a group's member needs. Several goroutines call its functions.
type Member struct {
	Refuse    func() error                                            // why no client may connect now, or nil
	Replicate func(device int, q *connect.Request, h *protocol.Hello) // answers another member
	Standby   func(ctx context.Context) error                         // see stream.ReceiverConfig
}

// Open opens the device, takes frames for messages and listens for clients. Clients wait until
// Begin.
func Open(e *pipeline.Env, c Config) (*Source, error) {
	from := &e.Flow.From
	s := &Source{region: e.Region, holder: e.Holder, do: e.Do, method: from.Method, relay: c.Relay, log: c.Log, member: c.Member != nil}
	s.acks.region, s.acks.err, s.acks.numbered, s.acks.before = e.Region, e.Err, c.Numbered, c.Before
	s.batch.Frames = make([]umem.Frame, pipeline.Burst)
	r := stream.ReceiverConfig{
		Name: e.Name(), Worker: e.Holder, Flow: e.Flow.Name,
		Message: protocol.HeaderLen + uint32(from.Message), Peers: from.Clients, Landing: landing, Spread: c.Spread,
		Window: from.Window, Durability: c.Durability, Check: from.Verify, Write: from.Method == config.MethodWrite,
		Permit: device.Permit(from.Allow), AllowAnyGID: from.AllowAnyGID,
		Resume: c.Resume, Origins: c.Origins, Events: e.Events, Log: e.Log, Joins: c.Joins,
	}
	if m := c.Member; m != nil {
		allowed := r.Permit
		r.Replicate, r.Standby = m.Replicate, m.Standby
		r.Permit = func(p connect.Peer, h protocol.Hello) error {
			if allowed != nil {
				if err := allowed(p, h); err != nil {
					return err
				}
			}
			if h.Capabilities&protocol.CapabilityStandby != 0 {
				return nil
			}
			return m.Refuse()
		}
	}
	if c.Log != nil {
		r.Permit = s.settled(r.Permit)
	}
	if c.Joins != nil {
		r.Unacknowledged, r.Participants = from.Window, from.Clients
	}
	if c.Log != nil {
		s.acks.before = c.Log.End.Next - 1
		s.early = c.Log.Acknowledge == config.AcknowledgeReceived && c.Member == nil
		s.dedup = &dedup{earlier: c.Log.End.Sessions}
		r.Next, r.Forgotten = s.dedup.next, s.dedup.forgotten
	}
	var err error
	if s.device, err = e.UseDevice(from.RDMA); err != nil {
		return nil, err
	}
	r.Endpoint = s.device.In(from.Class)
	if err := s.takeFrames(e, c); err != nil {
		return nil, err
	}
	for _, p := range from.Paths {
		d, err := e.UseDevice(p.RDMA)
		if err != nil {
			return nil, err
		}
		s.further, r.Others = append(s.further, d), append(r.Others, d.In(from.Class))
	}
	if s.receiver, err = stream.OpenReceiver(r); err != nil {
		return nil, err
	}
	e.Undo.Add(s.receiver.Close)
	return s, s.listen(e)
}

// KeepOwners makes the log record the owner of each message.
func (s *Source) KeepOwners() { s.acks.owners = s.receiver.OwnerID }

// AcknowledgeUpTo sets when messages are acknowledged. safe returns how many messages of the run
// have the guaranteed durability. Without this call every message is acknowledged when it is
// received. delivered reports whether the sink has delivered everything; nil: it always has.
func (s *Source) AcknowledgeUpTo(safe func() uint64, delivered func() bool) {
	s.safe, s.delivered = safe, delivered
}

// LimitPositions limits the messages that the source receives: room returns how many may follow a
// position.
func (s *Source) LimitPositions(room func(position uint64) int) { s.room = room }

// takeFrames takes the frames or extents for messages: the windows of all clients, so that a new
// client finds a receive whatever the others do, and the reserve for the rest of the flow.
func (s *Source) takeFrames(e *pipeline.Env, c Config) error {
	from := &e.Flow.From
	clients := from.Clients * (1 + len(from.Paths)) // each may come over each device
	s.window, s.each = from.Window*clients, 1
	least, most := s.window+c.MinReserve, s.window+c.MaxReserve
	take, quota, kind := e.Holder.Take, e.Shared.Quota.Frames, "frames"
	if c.Part != nil {
		take = func(dst []umem.Frame) int { return e.Holder.TakeFrom(c.Part, dst) }
		quota = int(c.Part.Size()/uint64(e.Region.FrameSize())) / max(1, e.Shared.Config.Receiving(e.Flow.To.Attach))
	}
	if !InFrames(e.Region, from.Message) {
		s.long, s.each = true, int(e.Region.ExtentSize()/uint64(e.Region.FrameSize()))
		take, quota, kind = e.Holder.TakeExtents, e.Shared.Quota.Extents-layoutExtents, "extents"
		least = clients + c.MinReserve // extents are few: each client has at least one, not its whole window
	}
	frames := make([]umem.Frame, min(most, max(least, quota)))
	s.total = take(frames)
	s.free.Push(frames[:s.total]...)
	if s.long {
		e.Shared.Quota.Extents -= s.total // the rest of the flow has what is left
	}
	if s.total < least {
		return fmt.Errorf("the region has %d free %s for messages; %d clients with a window of %d need %d at least, and what becomes of their messages %d of those: raise region.size or region.extents, or lower clients or window",
			s.total, kind, clients, from.Window, least, c.MinReserve)
	}
	reserve := c.MinReserve
	if s.long {
		reserve = c.reserveOf(s.total - clients)
	}
	s.window = min(s.window, s.total-reserve)
	s.least = s.window + reserve
	return nil
}

// reserveOf returns how many extents the rest of the flow gets, out of those that are not
// guaranteed to clients. With few extents a round moves few messages, and each round costs system
// calls.
func (c *Config) reserveOf(extents int) int {
	return max(c.MinReserve, min(c.MaxReserve, extents/2))
}

// InFrames reports whether messages with payloads up to this size land in frames. Longer ones land
// in extents.
func InFrames(r *umem.Region, message config.Size) bool {
	return (&config.Region{Frame: int(r.FrameSize())}).InFrame(message)
}

// listen opens the listener. Clients wait until the flow begins.
func (s *Source) listen(e *pipeline.Env) error {
	s.secure = e.Shared.Credentials != nil
	c := connect.Config{Credentials: e.Shared.Credentials, Failed: device.LogFailures(e.Log)}
	addresses := []string{e.Flow.From.Listen}
	for _, p := range e.Flow.From.Paths {
		addresses = append(addresses, p.Listen)
	}
	for _, at := range addresses {
		l, err := connect.Listen(context.Background(), at, c)
		if err != nil {
			return err
		}
		s.listeners = append(s.listeners, l)
		e.Undo.Add(l.Close)
	}
	e.Undo.Add(s.serving.Wait)
	return nil
}
