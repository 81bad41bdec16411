package config

import (
	"slices"
	"strings"
	"time"
)

// Kind is the pair of source and sink that a flow connects. The settings of From and To determine
// it.
type Kind string

// The kinds.
const (
	KindNetworkStorage Kind = "network-storage" // packets of an interface to files or a device
	KindRDMAStorage    Kind = "rdma-storage"    // messages of clients to a log
	KindNetworkRDMA    Kind = "network-rdma"    // packets of an interface to peers
	KindStorageRDMA    Kind = "storage-rdma"    // blocks of a file or a device to clients that request them
	KindStorageNVMe    Kind = "storage-nvme"    // a file or a device to NVMe hosts, over RDMA
	KindStorageNetwork Kind = "storage-network" // packets of captures to an interface
	KindRDMARDMA       Kind = "rdma-rdma"       // messages of clients to peers
	KindNullStorage    Kind = "null-storage"    // generated packets to files or a device
	KindNullRDMA       Kind = "null-rdma"       // generated packets to peers
	KindNetworkNull    Kind = "network-null"    // packets of an interface, counted and discarded
	KindRDMANull       Kind = "rdma-null"       // messages of clients, acknowledged and discarded
	KindNullNull       Kind = "null-null"       // generated packets, discarded
	KindNetworkAttach  Kind = "network-attach"  // packets of an interface to an attached program
	KindRDMAAttach     Kind = "rdma-attach"     // messages of clients to an attached program
	KindNullAttach     Kind = "null-attach"     // generated packets to an attached program
	KindStorageAttach  Kind = "storage-attach"  // blocks of a file or a device to an attached program that requests them
	KindAttachStorage  Kind = "attach-storage"  // messages of an attached program to a log
	KindAttachRDMA     Kind = "attach-rdma"     // messages of an attached program to peers
	KindAttachNull     Kind = "attach-null"     // messages of an attached program, acknowledged and discarded
	KindAttachOrder    Kind = "attach-order"    // orders of an attached program to an exchange
	KindNetworkOrder   Kind = "network-order"   // orders that rules make of packets of an interface, to an exchange
	KindAttachState    Kind = "attach-state"    // messages of an attached program to a state
	KindRDMAState      Kind = "rdma-state"      // messages of clients to a state
	KindStorageState   Kind = "storage-state"   // records of a log to a state
	KindChannelRDMA    Kind = "channel-rdma"    // messages of a channel to the same channel of peers
	KindRDMAChannel    Kind = "rdma-channel"    // messages of a peer's channel to the same channel here
	KindWitness        Kind = "witness"         // a member of a group that votes and has no records
)

// UsesDisk reports whether an end of such a flow may be a file or a device.
func (k Kind) UsesDisk() bool {
	from, to, two := strings.Cut(string(k), "-")
	return !two || from == "storage" || to == "storage" || to == "state"
}

// Moderated reports whether nobody waits for each packet of such a flow: a worker may then take many at once. That is true of
// captures, of packets mirrored to peers and of generated packets. Other flows have a peer or a program that waits.
func (k Kind) Moderated() bool {
	switch k {
	case KindNetworkStorage, KindNetworkRDMA, KindNetworkNull, KindNullStorage, KindNullRDMA, KindNullNull:
		return true
	}
	return false
}

// words describes the kind for messages.
func (k Kind) words() string {
	switch k {
	case KindNetworkStorage:
		return "from a network interface to storage"
	case KindRDMAStorage:
		return "from RDMA clients to storage"
	case KindNetworkRDMA:
		return "from a network interface to RDMA peers"
	case KindStorageRDMA:
		return "from storage to RDMA clients"
	case KindStorageNVMe:
		return "from storage to NVMe hosts"
	case KindStorageNetwork:
		return "from captures to a network interface"
	case KindRDMARDMA:
		return "from RDMA clients to RDMA peers"
	case KindNullStorage:
		return "from generated packets to storage"
	case KindNullRDMA:
		return "from generated packets to RDMA peers"
	case KindNetworkNull:
		return "from a network interface to nowhere"
	case KindRDMANull:
		return "from RDMA clients to nowhere"
	case KindNullNull:
		return "from generated packets to nowhere"
	case KindNetworkAttach:
		return "from a network interface to an attached program"
	case KindRDMAAttach:
		return "from RDMA clients to an attached program"
	case KindNullAttach:
		return "from generated packets to an attached program"
	case KindStorageAttach:
		return "from storage to an attached program"
	case KindAttachStorage:
		return "from an attached program to storage"
	case KindAttachRDMA:
		return "from an attached program to RDMA peers"
	case KindAttachNull:
		return "from an attached program to nowhere"
	case KindAttachOrder:
		return "from an attached program to an exchange"
	case KindNetworkOrder:
		return "from a network interface to an exchange"
	case KindAttachState:
		return "from an attached program to a state"
	case KindRDMAState:
		return "from RDMA clients to a state"
	case KindStorageState:
		return "from a log to a state"
	case KindChannelRDMA:
		return "of a channel to other machines"
	case KindRDMAChannel:
		return "of a channel from another machine"
	case KindWitness:
		return "of a witness"
	}
	return "from storage to storage or nowhere"
}

// Kind returns the flow's kind. It is empty for a flow from storage to storage or to nowhere,
// which does not exist. Without a source it counts as one from an interface. Without a sink it
// counts as one to the sink that is usual for the source.
func (f *Flow) Kind() Kind { return (&report{}).ends("", f).kind() }

// end is the type of a flow's source or sink.
type end uint8

const (
	nowhere end = iota
	network
	storage
	remote // over RDMA
	hosts  // over RDMA, by NVMe over Fabrics
	null   // generate, or discard
	votes  // of a witness
	program
	ring   // of a channel
	shares // state that others read
	exchange
)

// ends are the source and the sink of a flow.
type ends struct{ from, to end }

// ends returns the source and the sink of the flow at path. An end that the file names with an
// unusable value counts as named.
func (r *report) ends(path string, f *Flow) (e ends) {
	named := func(key, text string) bool {
		key = join(path, key)
		_, ok := r.places[key]
		return ok || text != "" || r.settled[key]
	}
	switch {
	case named("from.interface", f.From.Interface), named("from.interfaces", ""):
		e.from = network
	case named("from.rdma", f.From.RDMA), named("from.listen", f.From.Listen):
		e.from = remote
	case named("from.file", f.From.File), named("from.files", ""), len(f.From.Files) > 0, named("from.device", f.From.Device):
		e.from = storage
	case named("from.generate", f.From.generated()):
		e.from = null
	case named("from.attach", f.From.Attach):
		e.from = program
	case named("from.channel", f.From.Channel):
		e.from = ring
	}
	if f.To.Replicas != nil && f.To.Replicas.Witnesses() {
		e.from = votes
	}
	switch {
	case named("to.file", f.To.File), named("to.device", f.To.Device):
		e.to = storage
	case named("to.interface", f.To.Interface):
		e.to = network
	case named("to.attach", f.To.Attach):
		e.to = program
	case named("to.channel", f.To.Channel):
		e.to = ring
	case named("to.order", ""), f.To.Order != nil:
		e.to = exchange
	case named("to.state", f.To.State):
		e.to = shares
	case named("to.subsystem", f.To.Subsystem):
		e.to = hosts
	case named("to.rdma", f.To.RDMA), named("to.listen", f.To.Listen), named("to.peers", ""), len(f.To.Peers) > 0:
		e.to = remote
	case named("to.discard", f.To.discards()):
		e.to = null
	}
	return e
}

// kindOf maps source and sink to the kind of a flow.
var kindOf = map[ends]Kind{
	{network, storage}: KindNetworkStorage, {network, remote}: KindNetworkRDMA, {network, null}: KindNetworkNull,
	{remote, storage}: KindRDMAStorage, {remote, remote}: KindRDMARDMA, {remote, null}: KindRDMANull,
	{null, storage}: KindNullStorage, {null, remote}: KindNullRDMA, {null, null}: KindNullNull,
	{votes, storage}:   KindWitness,
	{network, program}: KindNetworkAttach, {remote, program}: KindRDMAAttach, {null, program}: KindNullAttach, {storage, program}: KindStorageAttach,
	{program, storage}: KindAttachStorage, {program, remote}: KindAttachRDMA, {program, null}: KindAttachNull,
	{program, exchange}: KindAttachOrder, {network, exchange}: KindNetworkOrder,
	{program, shares}: KindAttachState, {remote, shares}: KindRDMAState, {storage, shares}: KindStorageState,
	{ring, remote}: KindChannelRDMA, {remote, ring}: KindRDMAChannel,
	{storage, remote}: KindStorageRDMA, {storage, hosts}: KindStorageNVMe, {storage, network}: KindStorageNetwork,
}

// kind returns the kind of a flow with this source and sink.
func (e ends) kind() Kind {
	if e.from == nowhere {
		e.from = network
	}
	switch {
	case e.to == nowhere && e.from == storage:
		e.to = remote
	case e.to == nowhere:
		e.to = storage
	}
	return kindOf[e]
}

// Log reports whether the flow keeps a log.
func (k Kind) Log() bool { return k == KindRDMAStorage || k == KindAttachStorage }

// relays reports whether the flow passes messages on to peers, and acknowledges them.
func (k Kind) relays() bool { return k == KindRDMARDMA || k == KindAttachRDMA }

// SoftPrefix begins the name of a software RDMA device (RoCE v2); the name of the interface
// follows. Any other name is a kernel device.
const SoftPrefix = "roce:"

// SoftDevice returns the interface of a software RoCE device, and whether the name is one.
func SoftDevice(name string) (iface string, is bool) { return strings.CutPrefix(name, SoftPrefix) }

// MessageOverhead is how many bytes of a frame or extent a message needs in addition to its
// payload: its header, and the space before it that lets the disk write it in place.
const MessageOverhead = 640

// InFrame reports whether messages with payloads up to this size land in frames. A longer message
// lands in an extent.
func (r *Region) InFrame(message Size) bool {
	return r.Frame >= MessageOverhead && message <= Size(r.Frame-MessageOverhead)
}

// DefaultState is the default of control.state.
const DefaultState = "/var/lib/unifiedd"

// DefaultSocket is the control socket's default path.
const DefaultSocket = "/run/unifiedd/control.sock"

// segmentUnit is the unit to which segment sizes are rounded up. Direct I/O accepts it on any disk
// with blocks of up to 4096 bytes.
const segmentUnit = 4 * KiB

// defaultEvents is how many rounds of a flow the flight recorder keeps by default: 160 KiB.
const defaultEvents = 4096

// Default returns the configuration of an empty file, which has no flows.
func Default() *Config {
	return &Config{
		Region: Region{
			Size:   256 * MiB,
			Pages:  PagesAuto,
			Frame:  4096,
			Extent: MiB, // Complete raises Extents to what the flows need

			Reserve: true,
		},
		Workers: []Worker{NewWorker("main")},
		Log:     Log{Level: LevelInfo, Format: FormatText},
		Control: Control{Socket: DefaultSocket, State: DefaultState},
		Trace:   Trace{Events: defaultEvents},
		Attach:  Attach{Socket: DefaultAttachSocket},
	}
}

// NewWorker returns a worker with the defaults.
func NewWorker(name string) Worker {
	return Worker{Name: name, Wait: WaitSleep, Sleep: 200 * time.Microsecond}
}

// NewFlow returns a flow from a network interface to storage with the defaults. The caller sets the
// interface and the destination, which have no defaults. [Config.Complete] sets the rest.
func NewFlow(name string) Flow { return NewFlowOf(KindNetworkStorage, name) }

// NewFlowOf is [NewFlow] for any kind. The flow has that kind once the caller has named its source
// and sink.
func NewFlowOf(kind Kind, name string) Flow {
	f := Flow{Name: name}
	switch kind {
	case KindNetworkStorage:
		f.From, f.To = newNetwork(), newStore()
		f.From.Ring = 0
		f.To.Flush, f.To.Durable = 500*time.Millisecond, time.Second
	case KindRDMAStorage:
		f.From, f.To = newClients(), newStore()
		f.To.Durable, f.To.Acknowledge = GroupCommit, AcknowledgeDurable
	case KindNetworkRDMA:
		f.From, f.To = newNetwork(), newPeers()
	case KindStorageRDMA:
		f.To = To{Transfer: MiB, Window: 32, Clients: 16}
	case KindStorageNVMe:
		f.To = To{Window: 128, Clients: 8, ANA: ANAOptimized, Controllers: Controllers{1, MaxController}}
	case KindStorageNetwork:
		f.From, f.To = From{Loop: 1}, To{ZeroCopy: ZeroCopyPrefer, Ring: 4096, Spin: 50 * time.Microsecond, Late: time.Millisecond}
	case KindRDMARDMA:
		f.From, f.To = newClients(), newPeers()
	case KindNullStorage:
		f.To = newStore()
		f.To.Flush, f.To.Durable = 500*time.Millisecond, time.Second
	case KindNullRDMA:
		f.To = newPeers()
	case KindNetworkNull, KindNetworkOrder:
		f.From = newNetwork()
	case KindRDMANull, KindRDMAState:
		f.From = newClients()
	case KindNetworkAttach:
		f.From, f.To = newNetwork(), newProgram()
		f.To.Place = PlaceCopy
	case KindRDMAAttach:
		f.From, f.To = newClients(), newProgram()
	case KindNullAttach:
		f.To = newProgram()
	case KindStorageAttach:
		f.To = To{Queue: defaultWindow}
	case KindAttachStorage:
		f.From, f.To = From{Window: defaultWindow}, newStore()
		f.To.Durable, f.To.Acknowledge = GroupCommit, AcknowledgeDurable
	case KindAttachRDMA:
		f.From, f.To = From{Window: defaultWindow}, newPeers()
	case KindAttachNull, KindAttachState, KindAttachOrder:
		f.From = From{Window: defaultWindow}
	}
	return f
}

func newNetwork() From {
	return From{ZeroCopy: ZeroCopyPrefer, Timestamps: TimestampsSoftware, Ring: 4096, Promiscuous: true, Priority: DefaultPriority}
}

// DefaultBuffer is the default of From.Buffer.
const DefaultBuffer = 64 * MiB

// DefaultPriority is the default run priority of libxdp.
const DefaultPriority = 50

func newClients() From { return From{Window: 64, Clients: 16, Verify: true, Method: MethodSend} }

func newProgram() To { return To{Queue: 1024, Policy: PolicyDropNewest} }

func newStore() To {
	return To{Layout: LayoutPacked, Segment: Segment{Size: GiB}, KeepFree: DefaultRoom}
}

func newPeers() To {
	return To{Choose: ChooseAll, Queue: 1024, Method: MethodAny, Durability: AcknowledgeReceived}
}

// Complete sets the defaults that depend on other settings and rounds sizes up to their units. It
// may be called again at any time. [Load] and [Parse] call it.
func (c *Config) Complete() {
	c.Region.Size = c.Region.Size.roundUp(c.Region.Pages.Bytes())
	c.Attach.complete()
	c.Cluster.complete()
	for i := range c.Flows {
		f := &c.Flows[i]
		if f.Worker == "" && len(c.Workers) == 1 {
			f.Worker = c.Workers[0].Name
		}
		f.complete(&c.Region)
	}
	if c.Region.Extents == 0 {
		c.Region.Extents = c.defaultExtents()
	}
}

func (f *Flow) complete(r *Region) {
	kind := f.Kind()
	if f.Restart == "" {
		f.Restart = RestartOnFailure
	}
	if f.From.Message == 0 && kind == KindAttachOrder {
		f.From.Message = defaultOrder
	}
	if f.From.Message == 0 && (slices.Contains(fromClients, kind) || slices.Contains(fromPrograms, kind)) {
		f.From.Message = Size(r.Frame / 2)
	}
	if f.Watermarks.Low == 0 {
		f.Watermarks.Low = f.Watermarks.High / 2
	}
	f.From.defaultEngine(kind)
	if f.From.Buffer == 0 && kind == KindNetworkStorage && (f.From.Engine == EnginePacket || f.From.Engine == EngineAuto) {
		f.From.Buffer = DefaultBuffer
	}
	switch kind {
	case KindNetworkStorage, KindRDMAStorage, KindNullStorage, KindAttachStorage:
		f.To.complete()
	case KindStorageNVMe:
		if f.To.Keys != "" && f.To.Group == "" {
			f.To.Group = AuthFFDHE2048
		}
	case KindNetworkRDMA, KindNullRDMA:
		f.To.completePeers()
	case KindChannelRDMA:
		f.To.completeRemote()
	case KindRDMARDMA, KindAttachRDMA:
		f.To.completePeers()
		f.To.completeAcknowledge()
	}
}

// completeRemote sets the default: a peer that reads a channel costs the writer nothing.
func (t *To) completeRemote() {
	for i := range t.Peers {
		t.Peers[i].complete()
		if p := &t.Peers[i]; p.Policy == "" {
			p.Policy = PolicyDropOldest
		}
	}
}

func (t *To) completePeers() {
	for i := range t.Peers {
		t.Peers[i].complete()
		if p := &t.Peers[i]; p.Policy == "" {
			p.Policy = PolicyWait
		}
	}
}

// completeAcknowledge sets the default: a message for one peer is acknowledged when that peer has
// it.
func (t *To) completeAcknowledge() {
	switch {
	case t.Acknowledge != "":
	case t.Choose == ChooseAll:
		t.Acknowledge = AcknowledgeAll
	default:
		t.Acknowledge = AcknowledgeAny
	}
}

func (t *To) complete() {
	t.Segment.Size = t.Segment.Size.roundUp(segmentUnit)
	if t.Prepare == "" {
		t.Prepare = defaultPrepare(t)
	}
	if t.KeepFree == DefaultRoom && (t.Device != "" || t.Exact || t.Prepare == PrepareNone) {
		t.KeepFree = 0 // a device has none, a command fills the disk as tcpdump does, and nothing can be promised without allocation
	}
}

// defaultPrepare returns the default of Prepare. A device is not prepared. The slot layout prepares
// with zeroes, because its writes are fast only on space that was written before.
func defaultPrepare(t *To) Prepare {
	switch {
	case t.Device != "":
		return PrepareNone
	case t.Layout == LayoutSlot:
		return PrepareZero
	}
	return PrepareAllocate
}
