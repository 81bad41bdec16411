package config

import (
	"reflect"
	"slices"
)

// key is a setting of a flow which has a meaning for flows of some kinds.
type key struct {
	path  string // in the flow
	about string // what it has a meaning for
	kinds []Kind
	field func(*Flow) any // a pointer to the setting; nil: the keys below are apart
}

// Flows of these kinds have something in common.
var (
	fromNetwork   = []Kind{KindNetworkStorage, KindNetworkRDMA, KindNetworkNull}
	fromClients   = []Kind{KindRDMAStorage, KindRDMARDMA, KindRDMANull}
	fromNull      = []Kind{KindNullStorage, KindNullRDMA, KindNullNull}
	toStorage     = []Kind{KindNetworkStorage, KindRDMAStorage, KindNullStorage}
	recorded      = []Kind{KindNetworkStorage}
	packetsStored = []Kind{KindNetworkStorage, KindNullStorage}
	toPeers       = []Kind{KindNetworkRDMA, KindRDMARDMA, KindNullRDMA}
	toClients     = []Kind{KindStorageRDMA}
	toHosts       = []Kind{KindStorageNVMe}
	replays       = []Kind{KindStorageNetwork}
	filtered      = slices.Concat(fromNetwork, replays)
	served        = slices.Concat(toClients, toHosts)
	acknowledged  = []Kind{KindRDMAStorage, KindRDMARDMA}
	holding       = slices.Concat(fromNetwork, fromClients, fromNull)
)

// What settings are about.
const (
	aboutInterface    = "a network interface"
	aboutRecorded     = "a flow from a network interface to storage"
	aboutFiltered     = "packets of a network interface or of captures"
	aboutReplay       = "a flow from captures to a network interface"
	aboutMessages     = "messages of RDMA clients"
	aboutHeld         = "packets and messages"
	aboutGenerated    = "generated packets"
	aboutAcknowledged = "messages of RDMA clients to storage or peers"
	aboutStorage      = "a flow to storage"
	aboutWritten      = "a flow to storage or NVMe hosts"
	aboutPackets      = "packets to storage"
	aboutPeers        = "a flow to RDMA peers"
	aboutBlocks       = "a flow from storage to RDMA clients"
	aboutServed       = "a flow from storage to RDMA clients or NVMe hosts"
	aboutHosts        = "a flow from storage to NVMe hosts"
)

// keys are all settings of a flow but its name, its worker, and what says where it
// begins and ends.
var keys = []key{
	{"from.comment", aboutRecorded, recorded, func(f *Flow) any { return &f.From.Comment }},
	{"from.queues", aboutInterface, fromNetwork, func(f *Flow) any { return &f.From.Queues }},
	{"from.zero_copy", aboutInterface, fromNetwork, func(f *Flow) any { return &f.From.ZeroCopy }},
	{"from.filter", aboutFiltered, filtered, func(f *Flow) any { return &f.From.Filter }},
	{"from.ring", aboutInterface, fromNetwork, func(f *Flow) any { return &f.From.Ring }},
	{"from.busy_poll", aboutInterface, fromNetwork, func(f *Flow) any { return &f.From.BusyPoll }},
	{"from.timestamps", aboutInterface, fromNetwork, func(f *Flow) any { return &f.From.Timestamps }},
	{"from.promiscuous", aboutInterface, fromNetwork, func(f *Flow) any { return &f.From.Promiscuous }},
	{"from.mirror", aboutInterface, fromNetwork, func(f *Flow) any { return &f.From.Mirror }},
	{"from.steer", aboutInterface, fromNetwork, func(f *Flow) any { return &f.From.Steer }},
	{"from.beside", aboutInterface, fromNetwork, func(f *Flow) any { return &f.From.Beside }},
	{"from.priority", aboutInterface, fromNetwork, func(f *Flow) any { return &f.From.Priority }},
	{"from.take_over", aboutInterface, fromNetwork, func(f *Flow) any { return &f.From.TakeOver }},
	{"from.listen", aboutMessages, fromClients, func(f *Flow) any { return &f.From.Listen }},
	{"from.message", aboutMessages, fromClients, func(f *Flow) any { return &f.From.Message }},
	{"from.window", aboutMessages, fromClients, func(f *Flow) any { return &f.From.Window }},
	{"from.clients", aboutMessages, fromClients, func(f *Flow) any { return &f.From.Clients }},
	{"from.allow", aboutMessages, fromClients, func(f *Flow) any { return &f.From.Allow }},
	{"from.allow_any_gid", aboutMessages, fromClients, func(f *Flow) any { return &f.From.AllowAnyGID }},
	{"from.verify", aboutMessages, fromClients, func(f *Flow) any { return &f.From.Verify }},
	{"from.method", aboutMessages, fromClients, func(f *Flow) any { return &f.From.Method }},
	{"from.rate", aboutGenerated, fromNull, func(f *Flow) any { return &f.From.Rate }},
	{"from.files", aboutReplay, replays, func(f *Flow) any { return &f.From.Files }},
	{"from.loop", aboutReplay, replays, func(f *Flow) any { return &f.From.Loop }},
	{"stages", aboutPeers, toPeers, func(f *Flow) any { return &f.Stages }},
	{"watermarks", aboutHeld, holding, nil},
	{"watermarks.high", aboutHeld, holding, func(f *Flow) any { return &f.Watermarks.High }},
	{"watermarks.low", aboutHeld, holding, func(f *Flow) any { return &f.Watermarks.Low }},
	{"to.force", aboutWritten, slices.Concat(toStorage, toHosts), func(f *Flow) any { return &f.To.Force }},
	{"to.comment", aboutStorage, toStorage, func(f *Flow) any { return &f.To.Comment }},
	{"to.layout", aboutStorage, toStorage, func(f *Flow) any { return &f.To.Layout }},
	{"to.segment", aboutStorage, toStorage, nil},
	{"to.segment.size", aboutStorage, toStorage, func(f *Flow) any { return &f.To.Segment.Size }},
	{"to.segment.every", aboutStorage, toStorage, func(f *Flow) any { return &f.To.Segment.Every }},
	{"to.segment.keep", aboutStorage, toStorage, func(f *Flow) any { return &f.To.Segment.Keep }},
	{"to.prepare", aboutStorage, toStorage, func(f *Flow) any { return &f.To.Prepare }},
	{"to.snaplen", aboutPackets, packetsStored, func(f *Flow) any { return &f.To.Snaplen }},
	{"to.keep_free", aboutStorage, toStorage, func(f *Flow) any { return &f.To.KeepFree }},
	{"to.mode", aboutStorage, toStorage, func(f *Flow) any { return &f.To.Mode }},
	{"to.owner", aboutStorage, toStorage, func(f *Flow) any { return &f.To.Owner }},
	{"to.index", aboutPackets, packetsStored, func(f *Flow) any { return &f.To.Index }},
	{"to.flush", aboutStorage, toStorage, func(f *Flow) any { return &f.To.Flush }},
	{"to.durable", aboutStorage, toStorage, func(f *Flow) any { return &f.To.Durable }},
	{"to.acknowledge", aboutAcknowledged, acknowledged, func(f *Flow) any { return &f.To.Acknowledge }},
	{"to.peers", aboutPeers, toPeers, func(f *Flow) any { return &f.To.Peers }},
	{"to.choose", aboutPeers, toPeers, func(f *Flow) any { return &f.To.Choose }},
	{"to.queue", aboutPeers, toPeers, func(f *Flow) any { return &f.To.Queue }},
	{"to.method", aboutPeers, toPeers, func(f *Flow) any { return &f.To.Method }},
	{"to.durability", aboutPeers, toPeers, func(f *Flow) any { return &f.To.Durability }},
	{"to.participant", aboutPeers, toPeers, func(f *Flow) any { return &f.To.Participant }},
	{"to.listen", aboutServed, served, func(f *Flow) any { return &f.To.Listen }},
	{"to.cache", aboutBlocks, toClients, func(f *Flow) any { return &f.To.Cache }},
	{"to.transfer", aboutBlocks, toClients, func(f *Flow) any { return &f.To.Transfer }},
	{"to.window", aboutServed, served, func(f *Flow) any { return &f.To.Window }},
	{"to.clients", aboutServed, served, func(f *Flow) any { return &f.To.Clients }},
	{"to.allow", aboutBlocks, toClients, func(f *Flow) any { return &f.To.Allow }},
	{"to.allow_any_gid", aboutBlocks, toClients, func(f *Flow) any { return &f.To.AllowAnyGID }},
	{"to.zero_copy", aboutReplay, replays, func(f *Flow) any { return &f.To.ZeroCopy }},
	{"to.ring", aboutReplay, replays, func(f *Flow) any { return &f.To.Ring }},
	{"to.pace", aboutReplay, replays, func(f *Flow) any { return &f.To.Pace }},
	{"to.spin", aboutReplay, replays, func(f *Flow) any { return &f.To.Spin }},
	{"to.late", aboutReplay, replays, func(f *Flow) any { return &f.To.Late }},
	{"to.max_gap", aboutReplay, replays, func(f *Flow) any { return &f.To.MaxGap }},
	{"to.hosts", aboutHosts, toHosts, func(f *Flow) any { return &f.To.Hosts }},
	{"to.allow_any_host", aboutHosts, toHosts, func(f *Flow) any { return &f.To.AllowAnyHost }},
	{"to.keys", aboutHosts, toHosts, func(f *Flow) any { return &f.To.Keys }},
	{"to.group", aboutHosts, toHosts, func(f *Flow) any { return &f.To.Group }},
	{"to.read_only", aboutHosts, toHosts, func(f *Flow) any { return &f.To.ReadOnly }},
	{"to.namespaces", aboutHosts, toHosts, func(f *Flow) any { return &f.To.Namespaces }},
	{"to.subsystems", aboutHosts, toHosts, func(f *Flow) any { return &f.To.Subsystems }},
}

// about is what the setting at path of a flow is about; empty for those which say
// where a flow begins and ends.
func about(path string) string {
	for i := range keys {
		if keys[i].path == path {
			return keys[i].about
		}
	}
	return ""
}

// fitsFrom tells whether a key goes with those of a flow's beginning.
func fitsFrom(has fields, key string) bool {
	switch what := about("from." + key); {
	case has.any("interface", "interfaces"):
		return what == aboutInterface || what == aboutFiltered || what == aboutRecorded
	case has.any("rdma", "listen"):
		return what == aboutMessages || key == "rdma"
	case has.any("files", "loop"):
		return what == aboutReplay || what == aboutFiltered
	case has.any("generate", "rate"):
		return what == aboutGenerated || key == "generate"
	}
	return !has.any("file", "device")
}

// fitsTo tells whether a key goes with those of a flow's end.
func fitsTo(has fields, key string) bool {
	switch what := about("to." + key); {
	case has.any("interface"):
		return what == aboutReplay
	case has.any("file", "device"):
		return what == aboutStorage || what == aboutWritten || what == aboutPackets || what == aboutAcknowledged
	case has.any("peers"):
		return what == aboutPeers || what == aboutAcknowledged || key == "rdma"
	case has.any("discard"):
		return false
	case has.any("subsystem"):
		return what == aboutServed || what == aboutHosts || what == aboutWritten || key == "rdma"
	case has.any("listen"):
		return what == aboutBlocks || what == aboutServed || what == aboutHosts || what == aboutWritten || key == "rdma" || key == "subsystem"
	case has.any("rdma"):
		return what != aboutStorage && what != aboutPackets && what != aboutReplay && what != ""
	}
	return true
}

func (k *key) isZero(f *Flow) bool {
	return k.field == nil || reflect.ValueOf(k.field(f)).Elem().IsZero()
}

func (k *key) copy(dst, src *Flow) {
	reflect.ValueOf(k.field(dst)).Elem().Set(reflect.ValueOf(k.field(src)).Elem())
}

// fill gives what the file does not say of the flow at path the defaults of the
// flow's kind.
func (d *decoder) fill(path string, f *Flow) {
	e := d.ends(path, f)
	if e.kind() == "" { // its beginning is checked all the same
		e.to = null
	}
	defaults := NewFlowOf(e.kind(), "")
	for i := range keys {
		k := &keys[i]
		_, given := d.places[join(path, k.path)]
		if k.field != nil && (!given || d.explained(join(path, k.path))) {
			k.copy(f, &defaults)
		}
	}
}

// meaning refuses the settings which have none for the flow at path. Of a flow
// with an end nobody knows, nothing is refused.
func (v *validator) meaning(path string, f *Flow, e ends) {
	kind := e.kind()
	if e.from == nowhere || e.to == nowhere || kind == "" {
		return
	}
	for i := range keys {
		k := &keys[i]
		at := join(path, k.path)
		if _, given := v.places[at]; slices.Contains(k.kinds, kind) || !given && k.isZero(f) {
			continue
		}
		v.refuse(at, wrong("remove it", "has a meaning only for %s, and this flow is %s", k.about, kind.words()))
		v.settle(at)
	}
}
