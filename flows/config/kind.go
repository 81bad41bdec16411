package config

import "strings"

// Kind is what a flow connects. It follows from what its ends have.
type Kind string

// The kinds.
const (
	KindNetworkStorage Kind = "network-storage" // packets of an interface to files or a device
	KindRDMAStorage    Kind = "rdma-storage"    // messages of clients to a log
	KindNetworkRDMA    Kind = "network-rdma"    // packets of an interface to peers
	KindStorageRDMA    Kind = "storage-rdma"    // blocks of a file or a device to clients who ask
	KindStorageNVMe    Kind = "storage-nvme"    // a file or a device to NVMe hosts, over RDMA
	KindStorageNetwork Kind = "storage-network" // packets of captures to an interface
	KindRDMARDMA       Kind = "rdma-rdma"       // messages of clients to peers
	KindNullStorage    Kind = "null-storage"    // generated packets to files or a device
	KindNullRDMA       Kind = "null-rdma"       // generated packets to peers
	KindNetworkNull    Kind = "network-null"    // packets of an interface, counted and discarded
	KindRDMANull       Kind = "rdma-null"       // messages of clients, acknowledged and discarded
	KindNullNull       Kind = "null-null"       // generated packets, discarded
)

// words say what a flow of the kind does, for messages.
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
	}
	return "from storage to storage or nowhere"
}

// Kind is the flow's kind; empty for a flow from storage to storage or to nowhere, which there
// is none of. A beginning which is not said counts as an interface, an end which
// is not said as what goes with the beginning.
func (f *Flow) Kind() Kind { return (&report{}).ends("", f).kind() }

// end is what one side of a flow is.
type end uint8

const (
	nowhere end = iota
	network
	storage
	remote // over RDMA
	hosts  // over RDMA, by NVMe over Fabrics
	null   // what is generated, or discarded
)

// ends are both sides of a flow.
type ends struct{ from, to end }

// ends are the ends of the flow at path. What the file names without a value that
// can be used counts as named.
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
	}
	switch {
	case named("to.file", f.To.File), named("to.device", f.To.Device):
		e.to = storage
	case named("to.interface", f.To.Interface):
		e.to = network
	case named("to.subsystem", f.To.Subsystem):
		e.to = hosts
	case named("to.rdma", f.To.RDMA), named("to.listen", f.To.Listen), named("to.peers", ""), len(f.To.Peers) > 0:
		e.to = remote
	case named("to.discard", f.To.discards()):
		e.to = null
	}
	return e
}

// kindOf is the kind of a flow by its ends.
var kindOf = map[ends]Kind{
	{network, storage}: KindNetworkStorage, {network, remote}: KindNetworkRDMA, {network, null}: KindNetworkNull,
	{remote, storage}: KindRDMAStorage, {remote, remote}: KindRDMARDMA, {remote, null}: KindRDMANull,
	{null, storage}: KindNullStorage, {null, remote}: KindNullRDMA, {null, null}: KindNullNull,
	{storage, remote}: KindStorageRDMA, {storage, hosts}: KindStorageNVMe, {storage, network}: KindStorageNetwork,
}

// kind is the kind of a flow with these ends.
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

// SoftPrefix begins the name of an RDMA device that is RoCE v2 in software on the
// interface behind it. Any other name is that of one of the kernel's devices.
const SoftPrefix = "roce:"

// SoftDevice is the interface of a device with RoCE in software, and whether the
// name is that of one.
func SoftDevice(name string) (iface string, is bool) { return strings.CutPrefix(name, SoftPrefix) }

// MessageOverhead is how many bytes of a frame or extent a message needs beside its
// payload: its header, and what is in front of it so that it can be written to disk
// from where it landed.
const MessageOverhead = 640

// InFrame tells whether messages with payloads up to this size land in frames.
// Longer ones land in extents, one each.
func (r *Region) InFrame(message Size) bool {
	return r.Frame >= MessageOverhead && message <= Size(r.Frame-MessageOverhead)
}
