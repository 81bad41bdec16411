package flows

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/flows/layout"
	"github.com/unifiedd/unifiedd/flows/member"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/relay"
	"github.com/unifiedd/unifiedd/flows/replay"
	"github.com/unifiedd/unifiedd/flows/segment"
	"github.com/unifiedd/unifiedd/flows/serve"
	"github.com/unifiedd/unifiedd/flows/sink/discard"
	"github.com/unifiedd/unifiedd/flows/sink/disk"
	"github.com/unifiedd/unifiedd/flows/sink/feed"
	"github.com/unifiedd/unifiedd/flows/sink/peers"
	"github.com/unifiedd/unifiedd/flows/source/afxdp"
	"github.com/unifiedd/unifiedd/flows/source/generator"
	"github.com/unifiedd/unifiedd/flows/source/message"
	"github.com/unifiedd/unifiedd/internal/numa"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/umem"
)

// open opens both ends of a flow and connects them. Nothing moves until a worker polls the flow and Begin has
// been called. The caller runs e.Undo, also after success.
func open(e *pipeline.Env) (*pipeline.Run, error) {
	if err := e.Open(); err != nil {
		return nil, err
	}
	switch kind := e.Flow.Kind(); kind {
	case config.KindNetworkStorage:
		return openNetworkStorage(e)
	case config.KindNetworkRDMA:
		return openNetworkRDMA(e)
	case config.KindNetworkNull:
		return openNetworkNull(e)
	case config.KindRDMAStorage:
		return openLog(e)
	case config.KindWitness:
		return openWitness(e)
	case config.KindRDMARDMA:
		return openRelay(e)
	case config.KindRDMANull:
		return openRDMANull(e)
	case config.KindNullStorage:
		return openNullStorage(e)
	case config.KindNullRDMA:
		return openNullRDMA(e)
	case config.KindNullNull:
		return openNullNull(e)
	case config.KindNetworkAttach:
		return openNetworkAttach(e)
	case config.KindNullAttach:
		return openNullAttach(e)
	case config.KindRDMAAttach:
		return openRDMAAttach(e)
	case config.KindStorageAttach:
		return serve.OpenProgram(e)
	case config.KindAttachStorage:
		return openAttachLog(e)
	case config.KindAttachRDMA:
		return openAttachRelay(e)
	case config.KindAttachNull:
		return openAttachNull(e)
	case config.KindAttachOrder, config.KindNetworkOrder:
		return openOrders(e)
	case config.KindAttachState:
		return openAttachState(e)
	case config.KindRDMAState:
		return openRDMAState(e)
	case config.KindStorageState:
		return openStorageState(e)
	case config.KindChannelRDMA:
		return serve.OpenChannelOut(e)
	case config.KindRDMAChannel:
		return serve.OpenChannelIn(e)
	case config.KindStorageRDMA:
		return serve.OpenBlocks(e)
	case config.KindStorageNVMe:
		return serve.OpenNVMe(e)
	case config.KindStorageNetwork:
		return replay.Open(e)
	default:
		return nil, fmt.Errorf("flows of kind %s cannot be run by this release", kind)
	}
}

func openWitness(e *pipeline.Env) (*pipeline.Run, error) {
	source, err := member.OpenWitness(e)
	if err != nil {
		return nil, err
	}
	return join(e, source, discard.New(e.Region, &umem.FreeList{}), numa.Unknown, numa.Unknown), nil
}

// join makes a run of a source and a sink.
func join(e *pipeline.Env, source pipeline.Source, sink pipeline.Sink, from, to int) *pipeline.Run {
	return pipeline.NewRun(e, pipeline.New(e, source, sink), from, to)
}

func openNetworkRDMA(e *pipeline.Env) (*pipeline.Run, error) {
	source, err := afxdp.Open(e)
	if err != nil {
		return nil, err
	}
	length, err := source.MaxPacket()
	if err != nil {
		return nil, err
	}
	each := e.Region.FrameSize() - umem.PacketHeadroom // bytes of a packet in a frame
	sink, err := peers.Open(e, peers.Config{
		Free: source.Free(), Length: length, Frames: int((length + each - 1) / each), Queue: e.Flow.To.Queue,
	})
	if err != nil {
		return nil, err
	}
	queues := len(e.Flow.To.Peers) * e.Flow.To.Queue
	if err := source.Fill(e, 2*pipeline.Burst+feedFrames(e), feedFrames(e)+min(queues, 4*source.RingFrames())); err != nil {
		return nil, err
	}
	return joinFeed(e, source, sink, numa.Unknown)
}

// feedFrames returns how many frames a feed needs for messages.
func feedFrames(e *pipeline.Env) int {
	if e.Flow.Feed() == nil {
		return 0
	}
	return pipeline.Burst
}

// joinFeed makes a run of an interface and a sink. If the flow has a feed, its messages are put in order on the way.
// to is the NUMA node of the sink.
func joinFeed(e *pipeline.Env, source *afxdp.Source, sink pipeline.Sink, to int) (*pipeline.Run, error) {
	if e.Flow.Feed() != nil {
		var err error
		headroom := uint32(0)
		if e.Flow.To.Layout == config.LayoutSlot { // so that the disk writes messages from there
			headroom = layout.InPlaceHeadroom
		}
		if sink, err = feed.Open(e, source.Free(), sink, headroom); err != nil {
			return nil, err
		}
	}
	return join(e, source, sink, source.Node(), to), nil
}

func openNetworkNull(e *pipeline.Env) (*pipeline.Run, error) {
	source, err := afxdp.Open(e)
	if err != nil {
		return nil, err
	}
	if err := source.Fill(e, 2*pipeline.Burst, 2*pipeline.Burst); err != nil {
		return nil, err
	}
	return join(e, source, discard.New(e.Region, source.Free()), source.Node(), numa.Unknown), nil
}

func openNullStorage(e *pipeline.Env) (*pipeline.Run, error) {
	source, sink := generator.New(e), disk.New()
	most := 2*layout.MaxWriteFrames + disk.FramesInFlight(e.Flow.To)
	if err := source.Fill(e, 2*layout.MaxWriteFrames, most); err != nil {
		return nil, err
	}
	generated := pcapng.Interface{Name: "generated", Description: "packets that unifiedd made", LinkType: pcapng.LinkTypeEthernet}
	if err := sink.Open(e, disk.Config{Free: source.Free(), Interfaces: []pcapng.Interface{generated}}); err != nil {
		return nil, err
	}
	return join(e, source, sink, numa.Unknown, disk.Node(e)), nil
}

func openNullRDMA(e *pipeline.Env) (*pipeline.Run, error) {
	source, to := generator.New(e), &e.Flow.To
	sink, err := peers.Open(e, peers.Config{Free: source.Free(), Length: uint32(e.Flow.From.Generate), Frames: 1, Queue: to.Queue})
	if err != nil {
		return nil, err
	}
	if err := source.Fill(e, 2*pipeline.Burst, len(to.Peers)*to.Queue); err != nil {
		return nil, err
	}
	return join(e, source, sink, numa.Unknown, numa.Unknown), nil
}

func openNullNull(e *pipeline.Env) (*pipeline.Run, error) {
	source := generator.New(e)
	if err := source.Fill(e, 0, 0); err != nil {
		return nil, err
	}
	return join(e, source, discard.New(e.Region, source.Free()), numa.Unknown, numa.Unknown), nil
}

// openRDMANull opens a log without a disk. Positions begin with 1 at each start.
func openRDMANull(e *pipeline.Env) (*pipeline.Run, error) {
	source, err := message.Open(e, message.Config{
		MinReserve: 2, MaxReserve: 2 * pipeline.Burst, Durability: protocol.Received, Numbered: true,
	})
	if err != nil {
		return nil, err
	}
	source.Supply()
	return join(e, source, discard.New(e.Region, source.Free()), numa.Unknown, numa.Unknown), nil
}

// openLog opens a log, which a group may keep. It finds where an earlier run ended before the segments are recovered.
func openLog(e *pipeline.Env) (*pipeline.Run, error) {
	to := &e.Flow.To
	durability, err := protocol.ParseDurability(string(to.Acknowledge))
	if err != nil {
		return nil, err
	}
	c := message.Config{Durability: durability, Spread: to.Layout == config.LayoutPacked, Numbered: true, Origins: true}
	c.MinReserve, c.MaxReserve = logReserve(e)
	var m *member.Member
	var end journal.End
	if to.Replicas == nil {
		end, err = logEnd(e)
	} else if m, err = member.Prepare(e, durability); err == nil {
		least, most := m.Reserve(e)
		end, c.Member, c.MinReserve, c.MaxReserve = m.End(), m.Source(), c.MinReserve+least, c.MaxReserve+most
	}
	if err != nil {
		return nil, err
	}
	c.Log = &message.Log{Acknowledge: to.Acknowledge, End: end}
	clients, err := message.Open(e, c)
	if err != nil {
		return nil, err
	}
	if clients.Secure() {
		clients.KeepOwners()
	}
	if m != nil {
		return openMember(e, m, end, clients)
	}
	d := disk.Config{Free: clients.Free()}
	if d.Heads, err = takeHeads(e, clients); err != nil {
		return nil, err
	}
	sink, _, err := openLogDisk(e, d, end, clients, nil, func(records pcapng.Interface, run uint64) pcapng.Interface {
		if clients.Secure() {
			return journal.Owned(records, end.Next, run)
		}
		return records
	})
	if err != nil {
		return nil, err
	}
	acknowledgeBy(e, clients, sink)
	clients.Supply()
	return join(e, clients, sink, numa.Unknown, disk.Node(e)), nil
}

// openMember opens a log that a group keeps.
func openMember(e *pipeline.Env, m *member.Member, end journal.End, clients *message.Source) (*pipeline.Run, error) {
	source, err := m.Connect(e, clients)
	if err != nil {
		return nil, err
	}
	d := disk.Config{Free: source.Returned()}
	if d.Heads, err = takeHeads(e, clients); err != nil {
		return nil, err
	}
	writer, manifest, err := openLogDisk(e, d, end, source, m, func(records pcapng.Interface, run uint64) pcapng.Interface {
		return journal.Grouped(records, end.Next, run)
	})
	if err != nil {
		return nil, err
	}
	source.OnChange(manifest.Changed)
	source.Supply()
	return join(e, source, m.Sink(writer), numa.Unknown, disk.Node(e)), nil
}

// logSource is a source of the messages of a log.
type logSource interface {
	Received() uint64
	LimitPositions(room func(position uint64) int)
}

// openLogDisk opens the disk of a log that continues after end. mark completes the description of its records. m may be
// nil.
func openLogDisk(e *pipeline.Env, d disk.Config, end journal.End, source logSource, m *member.Member, mark func(records pcapng.Interface, run uint64) pcapng.Interface) (*disk.Writer, *segment.Manifest, error) {
	run, err := newRunNumber()
	if err != nil {
		return nil, nil, err
	}
	w := disk.New()
	d.Gather, d.GatherFlushes = true, e.Flow.To.Acknowledge == config.AcknowledgeReceived
	d.Manifest = segment.NewManifest(end, journal.Run{Number: run, Start: end.Next}, source.Received, w.DurableShown)
	if m != nil {
		d.Manifest.Group = m.Manifest
	}
	records := mark(journal.Source(e.Flow.Name, end.Next, run, protocol.HeaderLen+uint32(e.Flow.From.Message)), run)
	if e.Flow.From.Verify || d.Records != nil { // then the layout computes checksums
		records = journal.Verified(records)
	}
	d.Interfaces = []pcapng.Interface{records}
	if err := w.Open(e, d); err != nil {
		return nil, nil, err
	}
	source.LimitPositions(d.Manifest.Room)
	return w, d.Manifest, messageFits(e, w)
}

// acknowledgeBy has a source acknowledge messages when the disk has them as safely as the flow promises.
func acknowledgeBy(e *pipeline.Env, source interface {
	AcknowledgeUpTo(safe func() uint64, delivered func() bool)
}, w *disk.Writer) {
	switch e.Flow.To.Acknowledge {
	case config.AcknowledgeWritten:
		source.AcknowledgeUpTo(w.PacketsWritten, nil)
	case config.AcknowledgeDurable:
		source.AcknowledgeUpTo(w.PacketsDurable, nil)
	}
}

// logReserve returns how many messages of a log may be in flight to the disk: the least that it needs and the
// most that it can use. With layout slot, the disk writes messages from where they landed.
func logReserve(e *pipeline.Env) (least, most int) {
	inFrames := message.InFrames(e.Region, e.Flow.From.Message)
	switch inPlace := e.Flow.To.Layout == config.LayoutSlot; {
	case inPlace && !inFrames:
		return 8, 4 * layout.MaxWrites
	case inPlace:
		return 2*layout.MaxWriteFrames + 2*pipeline.Burst, layout.MaxWrites * layout.MaxWriteFrames
	case !inFrames:
		return 4, pipeline.Burst
	}
	return 2 * pipeline.Burst, 2 * pipeline.Burst
}

// logEnd finds the position at which the log continues. It logs an error for each gap before that position.
func logEnd(e *pipeline.Env) (journal.End, error) {
	end, err := journal.Tail(cmp.Or(e.Flow.To.Device, e.Flow.To.File))
	if err != nil {
		return end, err
	}
	if end.Grouped() {
		return end, fmt.Errorf("the log %s is that of a group's member, and the flow has no to.group: a flow outside the group would give its positions to other records (configure to.group, or another file)",
			cmp.Or(e.Flow.To.Device, e.Flow.To.File))
	}
	for _, gap := range end.Gaps {
		e.Log.Error("records that were durable are missing from the log (the disk or its controller may ignore flushes)", "err", gap)
	}
	return end, nil
}

// newRunNumber draws the number of a run of a log.
func newRunNumber() (uint64, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, fmt.Errorf("draw the number of this run: %w", err)
	}
	return binary.NativeEndian.Uint64(b[:]), nil
}

// takeHeads takes frames for block headers in front of messages that land in extents. It returns nil if they do not.
func takeHeads(e *pipeline.Env, clients *message.Source) (*umem.FreeList, error) {
	if !clients.InExtents() || e.Flow.To.Layout != config.LayoutSlot {
		return nil, nil
	}
	heads := make([]umem.Frame, 2*layout.MaxWrites)
	if n := e.Holder.Take(heads); n < len(heads) {
		return nil, fmt.Errorf("the region has %d free frames and not %d: raise region.size", n, len(heads))
	}
	return umem.NewFreeList(heads), nil
}

// messageFits reports messages that are too long for a batch.
func messageFits(e *pipeline.Env, sink *disk.Writer) error {
	most := sink.MaxBatch()
	if e.Flow.To.Layout == config.LayoutPacked {
		most = min(most, e.Region.ExtentSize())
	}
	message := e.Flow.From.Message
	need := uint64(pcapng.PacketBlockLen(protocol.HeaderLen+uint32(message)+pcapng.NumberLen, layout.InPlaceAlign)) + 2*uint64(sink.Align())
	if need > most {
		return fmt.Errorf("a message of %d bytes needs %d in a batch, which has %d at most: a quarter of segment.size and, with layout packed, region.extent. Raise them, or lower message",
			message, need, most)
	}
	return nil
}

// openRelay opens a relay. A message is acknowledged when enough peers have it, or have the sum that it is
// part of.
func openRelay(e *pipeline.Env) (*pipeline.Run, error) {
	from, to := &e.Flow.From, &e.Flow.To
	durability, err := protocol.ParseDurability(string(to.Durability))
	if err != nil {
		return nil, err
	}
	reducer, err := relay.NewReducer(e.Flow.Stages, e.Region, from.Clients, from.Window)
	if err != nil {
		return nil, err
	}
	c := message.Config{
		MinReserve: 2, MaxReserve: max(2*pipeline.Burst, len(to.Peers)*to.Queue), Durability: durability, Relay: true,
		Resume: reducer == nil, Origins: reducer == nil,
	}
	if reducer != nil {
		c.Joins = reducer.Join
	}
	source, err := message.Open(e, c)
	if err != nil {
		return nil, err
	}
	sink, err := peers.Open(e, peers.Config{
		Free: source.Free(), Length: uint32(from.Message), Frames: 1, Queue: relayQueue(to, source.Spare()), Relay: reducer == nil,
	})
	if err != nil {
		return nil, err
	}
	source.AcknowledgeUpTo(sink.Acknowledged, sink.Delivered)
	if reducer != nil {
		reducer.Connect(source, sink.Acknowledged)
		source.Combine(reducer)
	}
	source.Supply()
	return join(e, source, sink, numa.Unknown, numa.Unknown), nil
}

// relayQueue returns how many messages may be in flight to each peer of a relay with this many spare frames.
// If the flow can do without a peer, each queue has at most half of them. A disconnected peer then cannot
// hold all of them and block the others.
func relayQueue(to *config.To, spare int) int {
	if to.Choose != config.ChooseAll || to.Acknowledge == config.AcknowledgeAll || len(to.Peers) == 1 {
		return to.Queue
	}
	return min(to.Queue, max(1, spare/2))
}
