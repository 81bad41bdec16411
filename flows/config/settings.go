package config

import (
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// setting is one key of a flow. A new setting is one row of the table below, a field of
// [Flow], a default in NewFlowOf and a check in one of the validate files.
type setting struct {
	path  string          // relative to the flow
	about string          // the subject of the setting
	kinds []Kind          // kinds of flows to which it applies
	field func(*Flow) any // returns a pointer to the value; nil: read sets the fields itself, or reads the settings below this one
	read  reader
}

// reader returns a function that reads a setting from a file. field is the setting's pointer.
type reader func(d *decoder, f *Flow, field any) read

// value reads one value. The field has the type that parse returns.
func value[T any](parse func(string) (T, error)) reader {
	return func(d *decoder, _ *Flow, field any) read { return set(d, field.(*T), parse) }
}

// texts reads a list of texts.
func texts(d *decoder, _ *Flow, field any) read { return readTexts(d, field.(*[]string)) }

// below reads a mapping of the settings whose paths begin with this one.
func below(path string) reader {
	return belowWhere(path, func(fields, string) bool { return true })
}

// belowWhere is below for keys that exclude each other.
func belowWhere(path string, goes fits) reader {
	return func(d *decoder, f *Flow, _ any) read {
		return func(at string, n *yaml.Node) { d.mappingWhere(at, n, d.settings(path+".", f), goes) }
	}
}

// KeysOf returns the keys that a flow of a kind may have and that not every flow has, relative to the flow.
func KeysOf(k Kind) (keys []string) {
	for i := range flowSettings {
		if s := &flowSettings[i]; slices.Contains(s.kinds, k) && (s.field != nil || !hasKeysBelow(s.path)) {
			keys = append(keys, s.path)
		}
	}
	return keys
}

func hasKeysBelow(path string) bool {
	return slices.ContainsFunc(flowSettings, func(s setting) bool { return strings.HasPrefix(s.path, path+".") })
}

// settings returns the keys one level below a path.
func (d *decoder) settings(prefix string, f *Flow) fields {
	found := make(fields)
	for i := range flowSettings {
		s := &flowSettings[i]
		key, ok := strings.CutPrefix(s.path, prefix)
		if !ok || strings.Contains(key, ".") {
			continue
		}
		var field any
		if s.field != nil {
			field = s.field(f)
		}
		found[key] = s.read(d, f, field)
	}
	return found
}

// Kinds of flows that have something in common.
var (
	fromNetwork   = []Kind{KindNetworkStorage, KindNetworkRDMA, KindNetworkNull, KindNetworkAttach, KindNetworkOrder}
	fromClients   = []Kind{KindRDMAStorage, KindRDMARDMA, KindRDMANull, KindRDMAAttach, KindRDMAState}
	severalPaths  = []Kind{KindRDMAStorage, KindRDMARDMA, KindRDMANull, KindRDMAChannel}
	fromNull      = []Kind{KindNullStorage, KindNullRDMA, KindNullNull, KindNullAttach}
	fromPrograms  = []Kind{KindAttachStorage, KindAttachRDMA, KindAttachNull, KindAttachState, KindAttachOrder}
	messages      = slices.Concat(fromClients, fromPrograms)
	placed        = []Kind{KindNetworkAttach}
	trusted       = []Kind{KindAttachRDMA}
	listening     = slices.Concat(fromClients, []Kind{KindRDMAChannel})
	toPrograms    = []Kind{KindNetworkAttach, KindRDMAAttach, KindNullAttach}
	toStorage     = []Kind{KindNetworkStorage, KindRDMAStorage, KindNullStorage, KindAttachStorage}
	recorded      = []Kind{KindNetworkStorage}
	packetsStored = []Kind{KindNetworkStorage, KindNullStorage}
	toPeers       = []Kind{KindNetworkRDMA, KindRDMARDMA, KindNullRDMA, KindAttachRDMA}
	peered        = slices.Concat(toPeers, []Kind{KindChannelRDMA})
	staged        = []Kind{KindNetworkRDMA, KindRDMARDMA, KindNullRDMA, KindNetworkAttach, KindNetworkStorage, KindNetworkOrder}
	fed           = []Kind{KindNetworkRDMA, KindNetworkAttach, KindNetworkStorage, KindNetworkOrder}
	queued        = slices.Concat(toPeers, toPrograms, []Kind{KindStorageAttach})
	toClients     = []Kind{KindStorageRDMA}
	connected     = slices.Concat(peered, toClients)
	toHosts       = []Kind{KindStorageNVMe}
	replays       = []Kind{KindStorageNetwork}
	filtered      = slices.Concat(fromNetwork, replays)
	served        = slices.Concat(toClients, toHosts)
	acknowledged  = []Kind{KindRDMAStorage, KindRDMARDMA, KindAttachStorage, KindAttachRDMA}
	toLogs        = []Kind{KindRDMAStorage, KindWitness}
	holding       = slices.Concat(fromNetwork, fromClients, fromNull, fromPrograms)
)

// Subjects of settings.
const (
	aboutEnds         = "" // names a flow, its worker, source or sink; applies to every kind
	aboutInterface    = "a network interface"
	aboutRecorded     = "a flow from a network interface to storage"
	aboutFiltered     = "packets of a network interface or of captures"
	aboutReplay       = "a flow from captures to a network interface"
	aboutMessages     = "messages of RDMA clients"
	aboutPaths        = "messages of RDMA clients to storage, to RDMA peers, or nowhere, or of a peer's channel"
	aboutListens      = "messages of RDMA clients, or of a peer's channel"
	aboutHeld         = "packets and messages"
	aboutGenerated    = "generated packets"
	aboutAcknowledged = "messages of RDMA clients or an attached program to storage or peers"
	aboutSubmitted    = "messages of RDMA clients or an attached program"
	aboutGiven        = "a flow to an attached program"
	aboutPlaced       = "packets of a network interface to an attached program"
	aboutTrusted      = "messages of an attached program to RDMA peers"
	aboutQueued       = "a flow to RDMA peers or an attached program"
	aboutStorage      = "a flow to storage"
	aboutWritten      = "a flow to storage or NVMe hosts"
	aboutPackets      = "packets to storage"
	aboutPeers        = "a flow to RDMA peers"
	aboutStaged       = "packets, or messages of RDMA clients, to RDMA peers, and packets of an interface to an attached program or storage"
	aboutBlocks       = "a flow from storage to RDMA clients"
	aboutServed       = "a flow from storage to RDMA clients or NVMe hosts"
	aboutConnected    = "a flow to RDMA peers or clients (NVMe hosts choose the class themselves)"
	aboutHosts        = "a flow from storage to NVMe hosts"
	aboutGroups       = "a log, or a flow from storage to NVMe hosts"
)

// flowSettings are all keys of a flow. An init function fills it, because the reader of a key
// refers to the keys below it.
var flowSettings []setting

func init() {
	flowSettings = slices.Concat(topSettings(), fromSettings(), toSettings(), hostSettings())
}

func topSettings() []setting {
	return []setting{
		{"name", aboutEnds, nil, func(f *Flow) any { return &f.Name }, value(parseText)},
		{"worker", aboutEnds, nil, func(f *Flow) any { return &f.Worker }, value(parseText)},
		{"restart", aboutEnds, nil, func(f *Flow) any { return &f.Restart }, value(oneOf(allRestarts))},
		{"stages", aboutStaged, staged, func(f *Flow) any { return &f.Stages }, readStages},
		{"watermarks", aboutHeld, holding, nil, below("watermarks")},
		{"watermarks.high", aboutHeld, holding, func(f *Flow) any { return &f.Watermarks.High }, value(parseInt)},
		{"watermarks.low", aboutHeld, holding, func(f *Flow) any { return &f.Watermarks.Low }, value(parseInt)},
		{"from", aboutEnds, nil, nil, belowWhere("from", fitsFrom)},
		{"to", aboutEnds, nil, nil, belowWhere("to", fitsTo)},
	}
}

func fromSettings() []setting {
	return []setting{
		{"from.interface", aboutEnds, nil, func(f *Flow) any { return &f.From.Interface }, value(parseText)},
		{"from.interfaces", aboutEnds, nil, nil, readInterfaces},
		{"from.engine", aboutRecorded, recorded, func(f *Flow) any { return &f.From.Engine }, value(oneOf(allEngines))},
		{"from.buffer", aboutRecorded, recorded, func(f *Flow) any { return &f.From.Buffer }, value(parseSize)},
		{"from.fanout", aboutRecorded, recorded, func(f *Flow) any { return &f.From.Fanout }, value(parseText)},
		{"from.comment", aboutRecorded, recorded, func(f *Flow) any { return &f.From.Comment }, value(parseText)},
		{"from.queues", aboutInterface, fromNetwork, func(f *Flow) any { return &f.From.Queues }, readQueues},
		{"from.zero_copy", aboutInterface, fromNetwork, func(f *Flow) any { return &f.From.ZeroCopy }, value(oneOf(allZeroCopies))},
		{"from.filter", aboutFiltered, filtered, func(f *Flow) any { return &f.From.Filter }, readFilter},
		{"from.ring", aboutInterface, fromNetwork, func(f *Flow) any { return &f.From.Ring }, value(parseInt)},
		{"from.busy_poll", aboutInterface, fromNetwork, func(f *Flow) any { return &f.From.BusyPoll }, value(parseDuration)},
		{"from.timestamps", aboutInterface, fromNetwork, func(f *Flow) any { return &f.From.Timestamps }, value(oneOf(allTimestamps))},
		{"from.promiscuous", aboutInterface, fromNetwork, func(f *Flow) any { return &f.From.Promiscuous }, value(parseBool)},
		{"from.join", aboutInterface, fromNetwork, func(f *Flow) any { return &f.From.Join }, readJoin},
		{"from.mirror", aboutInterface, fromNetwork, func(f *Flow) any { return &f.From.Mirror }, value(oneOf(allMirrors))},
		{"from.steer", aboutInterface, fromNetwork, func(f *Flow) any { return &f.From.Steer }, value(oneOf(allSteers))},
		{"from.beside", aboutInterface, fromNetwork, func(f *Flow) any { return &f.From.Beside }, value(oneOf(allBesides))},
		{"from.priority", aboutInterface, fromNetwork, func(f *Flow) any { return &f.From.Priority }, value(parseInt)},
		{"from.take_over", aboutInterface, fromNetwork, func(f *Flow) any { return &f.From.TakeOver }, value(parseBool)},
		{"from.rdma", aboutEnds, nil, func(f *Flow) any { return &f.From.RDMA }, readDevice("from.rdma")},
		{"from.rdma.device", aboutEnds, nil, nil, deviceOf(func(f *Flow) *string { return &f.From.RDMA })},
		{"from.rdma.traffic_class", aboutListens, listening, func(f *Flow) any { return &f.From.Class.TrafficClass }, value(parseTrafficClass)},
		{"from.rdma.priority", aboutListens, listening, func(f *Flow) any { return &f.From.Class.Priority }, value(parsePriority)},
		{"from.rdma.ecn", aboutListens, listening, func(f *Flow) any { return &f.From.Class.ECN }, value(parseBool)},
		{"from.rdma.min_rate", aboutListens, listening, func(f *Flow) any { return &f.From.Class.MinRate }, value(parseRate)},
		{"from.listen", aboutListens, listening, func(f *Flow) any { return &f.From.Listen }, value(parseText)},
		{"from.paths", aboutPaths, severalPaths, func(f *Flow) any { return &f.From.Paths }, readListenPaths},
		{"from.attach", aboutEnds, nil, func(f *Flow) any { return &f.From.Attach }, value(parseText)},
		{"from.trusted", aboutTrusted, trusted, func(f *Flow) any { return &f.From.Trusted }, value(parseBool)},
		{"from.channel", aboutEnds, nil, func(f *Flow) any { return &f.From.Channel }, value(parseText)},
		{"from.message", aboutSubmitted, messages, func(f *Flow) any { return &f.From.Message }, value(parseSome)},
		{"from.window", aboutSubmitted, messages, func(f *Flow) any { return &f.From.Window }, value(parseInt)},
		{"from.clients", aboutMessages, fromClients, func(f *Flow) any { return &f.From.Clients }, value(parseInt)},
		{"from.allow", aboutListens, listening, func(f *Flow) any { return &f.From.Allow }, texts},
		{"from.allow_any_gid", aboutListens, listening, func(f *Flow) any { return &f.From.AllowAnyGID }, value(parseBool)},
		{"from.verify", aboutMessages, fromClients, func(f *Flow) any { return &f.From.Verify }, value(parseBool)},
		{"from.method", aboutMessages, fromClients, func(f *Flow) any { return &f.From.Method }, value(oneOf(allMethods))},
		{"from.file", aboutEnds, nil, func(f *Flow) any { return &f.From.File }, value(parseText)},
		{"from.files", aboutReplay, replays, func(f *Flow) any { return &f.From.Files }, texts},
		{"from.loop", aboutReplay, replays, func(f *Flow) any { return &f.From.Loop }, value(parseLoop)},
		{"from.device", aboutEnds, nil, func(f *Flow) any { return &f.From.Device }, value(parseText)},
		{"from.generate", aboutEnds, nil, func(f *Flow) any { return &f.From.Generate }, value(parseSome)},
		{"from.rate", aboutGenerated, fromNull, func(f *Flow) any { return &f.From.Rate }, value(parseInt)},
	}
}

func toSettings() []setting {
	return []setting{
		{"to.file", aboutEnds, nil, func(f *Flow) any { return &f.To.File }, value(parseText)},
		{"to.device", aboutEnds, nil, func(f *Flow) any { return &f.To.Device }, value(parseText)},
		{"to.force", aboutWritten, slices.Concat(toStorage, toHosts), func(f *Flow) any { return &f.To.Force }, value(parseBool)},
		{"to.comment", aboutStorage, toStorage, func(f *Flow) any { return &f.To.Comment }, value(parseText)},
		{"to.layout", aboutStorage, toStorage, func(f *Flow) any { return &f.To.Layout }, value(oneOf(allLayouts))},
		{"to.segment", aboutStorage, toStorage, nil, below("to.segment")},
		{"to.segment.size", aboutStorage, toStorage, func(f *Flow) any { return &f.To.Segment.Size }, value(parseSize)},
		{"to.segment.every", aboutStorage, toStorage, func(f *Flow) any { return &f.To.Segment.Every }, value(parseDuration)},
		{"to.segment.keep", aboutStorage, toStorage, nil, readKeep},
		{"to.prepare", aboutStorage, toStorage, func(f *Flow) any { return &f.To.Prepare }, value(oneOf(allPrepares))},
		{"to.snaplen", aboutPackets, packetsStored, func(f *Flow) any { return &f.To.Snaplen }, value(parseSize)},
		{"to.keep_free", aboutStorage, toStorage, func(f *Flow) any { return &f.To.KeepFree }, value(ParseRoom)},
		{"to.create", aboutStorage, slices.Concat(toStorage, []Kind{KindWitness}), func(f *Flow) any { return &f.To.Create }, value(parseBool)},
		{"to.mode", aboutStorage, toStorage, func(f *Flow) any { return &f.To.Mode }, value(ParseMode)},
		{"to.owner", aboutStorage, toStorage, func(f *Flow) any { return &f.To.Owner }, value(parseText)},
		{"to.index", aboutPackets, packetsStored, func(f *Flow) any { return &f.To.Index }, value(parseBool)},
		{"to.flush", aboutStorage, toStorage, func(f *Flow) any { return &f.To.Flush }, value(parseDuration)},
		{"to.durable", aboutStorage, toStorage, func(f *Flow) any { return &f.To.Durable }, value(parseDurable)},
		{"to.rdma", aboutEnds, nil, func(f *Flow) any { return &f.To.RDMA }, readDevice("to.rdma")},
		{"to.rdma.device", aboutEnds, nil, nil, deviceOf(func(f *Flow) *string { return &f.To.RDMA })},
		{"to.rdma.traffic_class", aboutConnected, connected, func(f *Flow) any { return &f.To.Class.TrafficClass }, value(parseTrafficClass)},
		{"to.rdma.priority", aboutConnected, connected, func(f *Flow) any { return &f.To.Class.Priority }, value(parsePriority)},
		{"to.rdma.ecn", aboutConnected, connected, func(f *Flow) any { return &f.To.Class.ECN }, value(parseBool)},
		{"to.rdma.min_rate", aboutConnected, connected, func(f *Flow) any { return &f.To.Class.MinRate }, value(parseRate)},
		{"to.peers", aboutPeers, peered, func(f *Flow) any { return &f.To.Peers }, readPeers},
		{"to.choose", aboutPeers, toPeers, func(f *Flow) any { return &f.To.Choose }, value(oneOf(allChoices))},
		{"to.state", aboutEnds, nil, func(f *Flow) any { return &f.To.State }, value(parseText)},
		{"to.order", aboutEnds, nil, nil, readOrder},
		{"to.attach", aboutEnds, nil, func(f *Flow) any { return &f.To.Attach }, value(parseText)},
		{"to.channel", aboutEnds, nil, func(f *Flow) any { return &f.To.Channel }, value(parseText)},
		{"to.policy", aboutGiven, toPrograms, func(f *Flow) any { return &f.To.Policy }, value(oneOf(allPolicies))},
		{"to.place", aboutPlaced, placed, func(f *Flow) any { return &f.To.Place }, value(oneOf(allPlaces))},
		{"to.expose", aboutPlaced, placed, func(f *Flow) any { return &f.To.Expose }, value(parseBool)},
		{"to.queue", aboutQueued, queued, func(f *Flow) any { return &f.To.Queue }, value(parseInt)},
		{"to.method", aboutPeers, toPeers, func(f *Flow) any { return &f.To.Method }, value(oneOf(peerMethods))},
		{"to.durability", aboutPeers, toPeers, func(f *Flow) any { return &f.To.Durability }, value(oneOf(logAcknowledges))},
		{"to.participant", aboutPeers, toPeers, func(f *Flow) any { return &f.To.Participant }, value(parseInt)},
		{"to.acknowledge", aboutAcknowledged, acknowledged, func(f *Flow) any { return &f.To.Acknowledge }, value(parseAcknowledge)},
		{"to.listen", aboutServed, served, func(f *Flow) any { return &f.To.Listen }, value(parseText)},
		{"to.cache", aboutBlocks, toClients, func(f *Flow) any { return &f.To.Cache }, value(parseSize)},
		{"to.cache_index", aboutBlocks, toClients, func(f *Flow) any { return &f.To.CacheIndex }, value(parseText)},
		{"to.transfer", aboutBlocks, toClients, func(f *Flow) any { return &f.To.Transfer }, value(parseSize)},
		{"to.window", aboutServed, served, func(f *Flow) any { return &f.To.Window }, value(parseInt)},
		{"to.clients", aboutServed, served, func(f *Flow) any { return &f.To.Clients }, value(parseInt)},
		{"to.allow", aboutBlocks, toClients, func(f *Flow) any { return &f.To.Allow }, texts},
		{"to.allow_any_gid", aboutBlocks, toClients, func(f *Flow) any { return &f.To.AllowAnyGID }, value(parseBool)},
		{"to.interface", aboutEnds, nil, func(f *Flow) any { return &f.To.Interface }, value(parseText)},
		{"to.zero_copy", aboutReplay, replays, func(f *Flow) any { return &f.To.ZeroCopy }, value(oneOf(allZeroCopies))},
		{"to.ring", aboutReplay, replays, func(f *Flow) any { return &f.To.Ring }, value(parseInt)},
		{"to.pace", aboutReplay, replays, func(f *Flow) any { return &f.To.Pace }, value(ParsePace)},
		{"to.spin", aboutReplay, replays, func(f *Flow) any { return &f.To.Spin }, value(parseDuration)},
		{"to.late", aboutReplay, replays, func(f *Flow) any { return &f.To.Late }, value(parseDuration)},
		{"to.max_gap", aboutReplay, replays, func(f *Flow) any { return &f.To.MaxGap }, value(parseDuration)},
		{"to.discard", aboutEnds, nil, nil, readDiscard},
	}
}

// hostSettings are those of flows to NVMe hosts.
func hostSettings() []setting {
	return []setting{
		{"to.subsystem", aboutEnds, nil, func(f *Flow) any { return &f.To.Subsystem }, value(parseText)},
		{"to.hosts", aboutHosts, toHosts, func(f *Flow) any { return &f.To.Hosts }, texts},
		{"to.allow_any_host", aboutHosts, toHosts, func(f *Flow) any { return &f.To.AllowAnyHost }, value(parseBool)},
		{"to.keys", aboutHosts, toHosts, func(f *Flow) any { return &f.To.Keys }, value(parseText)},
		{"to.group", aboutGroups, slices.Concat(toHosts, toLogs), func(f *Flow) any { return &f.To.Group }, readGroup},
		{"to.read_only", aboutHosts, toHosts, func(f *Flow) any { return &f.To.ReadOnly }, value(parseBool)},
		{"to.ana", aboutHosts, toHosts, func(f *Flow) any { return &f.To.ANA }, value(oneOf(allANAStates))},
		{"to.reservations", aboutHosts, toHosts, func(f *Flow) any { return &f.To.Reservations }, value(parseText)},
		{"to.controllers", aboutHosts, toHosts, func(f *Flow) any { return &f.To.Controllers }, value(parseControllers)},
		{"to.namespaces", aboutHosts, toHosts, func(f *Flow) any { return &f.To.Namespaces }, readNamespaces},
		{"to.subsystems", aboutHosts, toHosts, func(f *Flow) any { return &f.To.Subsystems }, readSubsystems},
	}
}

// about returns the subject of the setting at path. It is empty for settings that name the source
// or sink of a flow.
func about(path string) string {
	for i := range flowSettings {
		if flowSettings[i].path == path {
			return flowSettings[i].about
		}
	}
	return ""
}

// fitsFrom reports whether key may stand in from beside the keys that are present.
func fitsFrom(has fields, key string) bool {
	switch what := about("from." + key); {
	case has.any("interface", "interfaces"):
		return what == aboutInterface || what == aboutFiltered || what == aboutRecorded
	case has.any("rdma", "listen"):
		return what == aboutMessages || what == aboutListens || what == aboutSubmitted || key == "rdma"
	case has.any("channel"):
		return false
	case has.any("attach"):
		return what == aboutSubmitted || what == aboutTrusted
	case has.any("files", "loop"):
		return what == aboutReplay || what == aboutFiltered
	case has.any("generate", "rate"):
		return what == aboutGenerated || key == "generate"
	case has.any("file", "device"):
		return false
	default:
		return what == aboutEnds || key == "files" // what decides of the kind
	}
}

// fitsTo reports whether key may stand in to beside the keys that are present.
func fitsTo(has fields, key string) bool {
	switch what := about("to." + key); {
	case has.any("interface"):
		return what == aboutReplay
	case has.any("file", "device"):
		return what == aboutStorage || what == aboutWritten || what == aboutPackets || what == aboutAcknowledged || what == aboutGroups
	case has.any("peers"):
		return what == aboutPeers || what == aboutQueued || what == aboutAcknowledged || key == "rdma"
	case has.any("attach"):
		return what == aboutGiven || what == aboutPlaced || what == aboutQueued
	case has.any("discard", "channel", "state", "order"):
		return false
	case has.any("subsystem"):
		return what == aboutServed || what == aboutHosts || what == aboutGroups || what == aboutWritten || key == "rdma"
	case has.any("listen"):
		return what == aboutBlocks || what == aboutServed || what == aboutHosts || what == aboutGroups || what == aboutWritten || key == "rdma" || key == "subsystem"
	case has.any("rdma"):
		return key == "peers" || key == "listen" || key == "subsystem"
	default:
		return what == aboutEnds // what decides of the kind
	}
}

func (s *setting) isZero(f *Flow) bool {
	return s.field == nil || reflect.ValueOf(s.field(f)).Elem().IsZero()
}

func (s *setting) copy(dst, src *Flow) {
	reflect.ValueOf(s.field(dst)).Elem().Set(reflect.ValueOf(s.field(src)).Elem())
}

// fill sets the settings that the file omits in the flow at path to the defaults of the flow's
// kind.
func (d *decoder) fill(path string, f *Flow) {
	e := d.ends(path, f)
	if e.kind() == "" { // the source is checked all the same
		e.to = null
	}
	defaults := NewFlowOf(e.kind(), "")
	for i := range flowSettings {
		k := &flowSettings[i]
		_, given := d.places[join(path, k.path)]
		if k.about != aboutEnds && k.field != nil && (!given || d.explained(join(path, k.path))) {
			k.copy(f, &defaults)
		}
	}
}

// meaning refuses the settings that do not apply to the flow at path. If the source or the sink is
// not known, it refuses nothing.
func (v *validator) meaning(path string, f *Flow, e ends) {
	kind := e.kind()
	if e.from == nowhere || e.to == nowhere || kind == "" {
		return
	}
	for i := range flowSettings {
		k := &flowSettings[i]
		at := join(path, k.path)
		if _, given := v.places[at]; k.about == aboutEnds || slices.Contains(k.kinds, kind) || !given && k.isZero(f) {
			continue
		}
		v.refuse(at, wrong("remove it", "has a meaning only for %s, and this flow is %s", k.about, kind.words()))
		v.settle(at)
	}
}
