package metrics

import (
	"maps"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/rdma/roce"
	"github.com/unifiedd/unifiedd/rdma/verbs"
)

// The metrics of flows with RDMA at the source, the sink or both.
var (
	descPairs          = describe("rdma_queue_pairs", "Queue pairs that flows have open on the RDMA device: one for each connection, of clients and of peers.", "device")
	descClients        = describe("connections_total", "Connections of RDMA clients that were established.", "flow")
	descBroken         = describe("broken_connections_total", "Connections of RDMA clients whose queue pair failed. A client that left, lost its TCP connection, or came back by another connection is not counted.", "flow")
	descReplays        = describe("replayed_messages_total", "Messages that were already received before; they are acknowledged again and dropped.", "flow")
	descTurnedAway     = describe("refused_total", "RDMA clients that were refused or disconnected, and requests for blocks that were refused (protocol.md has the reasons).", "flow", "reason")
	descHandshakes     = describe("failed_handshakes_total", "Connections of RDMA clients that were not established: tls, version, format, timeout (the first byte, the TLS handshake or the offer was late), closed, cancelled, refused (by the flow, which also counts its reason in unifiedd_refused_total, or by the client), queue_pair, network, address_limit (64 of the address were in their handshake), limit (512 of all addresses were).", "flow", "reason")
	descPosted         = describe("posted_receives", "Posted receives, or granted frames, that wait for a message.", "flow")
	descGranted        = describe("granted_messages", "For flows with method: write: messages whose memory clients may currently write to.", "flow")
	descGrants         = describe("grants_total", "For flows with method: write: messages for which clients were granted memory.", "flow")
	descLog            = describe("log_position", "Position in the log up to which messages are received, written, durable, acknowledged.", "flow", "status")
	descLogLost        = describe("log_lost_messages", "Messages that were durable and missing from the log when the flow started. Only the newest segments (64 MiB at least) are examined. 0 unless a disk lost or damaged data that it had reported as durable.", "flow")
	descPeerUp         = describe("peer_up", "1 while the RDMA peer of that name is connected.", "flow", "host")
	descPeerSent       = describe("peer_messages_total", "Messages for the peer: offered, acknowledged, resent.", "flow", "host", "status")
	descPeerLost       = describe("peer_dropped_messages_total", "Messages the peer did not get. disconnected has also those that it had not acknowledged when the flow ended.", "flow", "host", "reason")
	descPeerWaits      = describe("peer_waiting_messages", "Messages for the RDMA peer that are not acknowledged.", "flow", "host")
	descPeerStandby    = describe("peer_standby_connections", "Connections to members of the group that the RDMA peer is, which do not lead.", "flow", "host")
	descPeerMoves      = describe("peer_moves_total", "Connections to the RDMA peer that have begun as standby connections.", "flow", "host")
	descPathUp         = describe("peer_path_up", "1 while messages go to the peer over this one of several paths.", "flow", "host", "device", "address")
	descPathSent       = describe("peer_path_messages_total", "Messages sent to the RDMA peer over the path, each transmission counted.", "flow", "host", "device", "address")
	descPathTaken      = describe("peer_path_connections_total", "Times that the path to the RDMA peer was taken.", "flow", "host", "device", "address")
	descPathFailed     = describe("peer_path_failures_total", "Connections over the path that ended, and attempts that failed.", "flow", "host", "device", "address")
	descPathProbes     = describe("peer_path_probes_total", "Times that the peer was silent for 100 ms while messages waited, and its device was asked over the path for a sign of life. A peer with a slow disk answers these: it is no fault.", "flow", "host", "device", "address")
	descPeerFailed     = describe("peer_failures_total", "Connections to the RDMA peer that ended, and attempts that failed.", "flow", "host")
	descRequests       = describe("block_requests_total", "Requests for blocks: requested, served, waited, abandoned, retried. A retried request was read again with its own length, because a whole buffer of the cache could not be read.", "flow", "status")
	descServed         = describe("block_served_bytes_total", "Bytes of blocks written to clients.", "flow")
	descCache          = describe("cache_lookups_total", "Lookups of buffers in the region (op: frame or extent): hit, miss, evicted, failed.", "flow", "op", "status")
	descKept           = describe("cache_restart_buffers_total", "Buffers that an earlier run had cached (to.cache_index), counted when the flow is opened. kept: they are used again. Others are not, by reason: unclean (the run did not end in good order) and damaged (the index is), each counted once; restarted (the machine has), other_region (another device, or sizes), changed (the file or device, or it was written in the second before the earlier run), no_buffer (somebody else has the memory, or the cache is smaller), bad_tag (the memory has other bytes).", "flow", "status")
	descHosts          = describe("nvme_hosts", "NVMe hosts that are connected.", "flow")
	descHostQueues     = describe("nvme_queues", "Queues of NVMe hosts that are connected.", "flow")
	descCommands       = describe("nvme_commands_total", "Commands of NVMe hosts. Completed: read, write, flush, write_zeroes, dataset_management, compare, reservation, admin. Not completed: refused, with an error of the host's; failed, by the disk; inaccessible, because of the namespace's state here, or because it was removed; conflict, with a reservation; abandoned, because the queue ended.", "flow", "op")
	descCommandBytes   = describe("nvme_bytes_total", "Bytes that hosts read and wrote. in_capsules: written bytes that arrived in the command capsule and were not fetched.", "flow", "op")
	descCommandsWaited = describe("nvme_waited_total", "Commands of NVMe hosts that waited for a buffer.", "flow")
	descQueuesRefused  = describe("nvme_refused_queues_total", "Queues that were refused. length, format, queue, hsqsize, hrqsize, ird, ord and controller name the wrong field of the host's request. no_resources: all places for queues were in use.", "flow", "reason")
	descQueuesEnded    = describe("nvme_ended_queues_total", "Queues that were ended. broken: because of the host or the connection. silent: nothing was received within the keep-alive time. unproven: the host did not prove its identity. gave_way: the host had proven nothing yet, and a newer queue replaced this one.", "flow", "reason")
	descSpaceCommands  = describe("nvme_namespace_commands_total", "Commands of all hosts for a namespace of a subsystem, since the namespace was added. Completed: read, write, flush, write_zeroes, dataset_management, compare, reservation. Not completed: refused, failed, inaccessible, conflict.", "flow", "subsystem", "namespace", "op")
	descSpaceANA       = describe("nvme_namespace_ana", "1 for the state in which hosts see the namespace here: optimized, non-optimized, inaccessible.", "flow", "subsystem", "namespace", "state")
	descSpaceBytes     = describe("nvme_namespace_bytes_total", "Bytes of a namespace that NVMe hosts read and wrote.", "flow", "subsystem", "namespace", "op")
	descHostHas        = describe("nvme_host_queues", "Queues of a connected NVMe host, by the name that the host gave.", "flow", "host")
	descHostCommands   = describe("nvme_host_commands_total", "Commands of the host since it connected: all commands, refused commands, and completed reads and writes.", "flow", "host", "op")
	descHostBytes      = describe("nvme_host_bytes_total", "Bytes that an NVMe host read and wrote since it connected.", "flow", "host", "op")
	descChanged        = describe("stage_changed_total", "Packets a stage changed, or messages it added.", "flow", "op")
	descUnchanged      = describe("stage_left_total", "Packets a stage left as they were, by reason.", "flow", "op", "reason")
	descLatency        = describe("flow_latency_seconds", "A summary: time from the arrival of a message or request until its acknowledgement or answer.", "flow")
)

// collectStreams sends the RDMA metrics of a flow.
func collectStreams(out chan<- prometheus.Metric, f *status.Flow) {
	if f.Receives != nil {
		collectReceives(out, f.Name, f.Receives)
	}
	if f.Log != nil {
		collectLog(out, f.Name, f.Log)
	}
	if f.Group != nil {
		collectGroup(out, f.Name, f.Group)
	}
	if f.Sends != nil {
		for i := range f.Sends.Peers {
			collectPeer(out, f.Name, &f.Sends.Peers[i])
		}
	}
	if f.Blocks != nil {
		collectBlocks(out, f.Name, f.Blocks)
	}
	if f.Hosts != nil {
		collectHosts(out, f.Name, f.Hosts)
	}
	if f.Orders != nil {
		collectOrders(out, f.Name, f.Orders)
	}
	if f.Feed != nil {
		collectFeed(out, f.Name, f.Feed)
	}
	for _, s := range f.Stages {
		counter(out, descChanged, s.Changed, f.Name, s.Kind)
		each(out, descUnchanged, s.Left, f.Name, s.Kind)
	}
	if l := f.Latency; l != nil {
		seconds := func(ns int64) float64 { return float64(ns) / 1e9 }
		out <- prometheus.MustNewConstSummary(descLatency, uint64(l.Count), l.Mean*float64(l.Count)/1e9,
			map[float64]float64{0.5: seconds(l.P50), 0.99: seconds(l.P99), 0.999: seconds(l.P999)}, f.Name)
	}
}

func collectReceives(out chan<- prometheus.Metric, flow string, r *status.Receives) {
	counter(out, descClients, r.Connected, flow)
	counter(out, descBroken, r.Broken, flow)
	counter(out, descReplays, r.Replays, flow)
	each(out, descTurnedAway, r.Refused, flow)
	each(out, descHandshakes, r.Handshakes, flow)
	gauge(out, descPosted, float64(r.Posted), flow)
	gauge(out, descGranted, float64(r.Granted), flow)
	counter(out, descGrants, r.Grants, flow)
}

func collectLog(out chan<- prometheus.Metric, flow string, l *status.Log) {
	for status, at := range map[string]uint64{"received": l.Last, "written": l.Written, "durable": l.Durable, "acknowledged": l.Acknowledged} {
		gauge(out, descLog, float64(at), flow, status)
	}
	gauge(out, descLogLost, float64(l.Lost), flow)
}

func collectPeer(out chan<- prometheus.Metric, flow string, p *status.Peer) {
	gauge(out, descPeerUp, truth(p.State == "connected"), flow, p.Name)
	each(out, descPeerSent, map[string]uint64{"offered": p.Offered, "acknowledged": p.Acknowledged, "resent": p.Resent}, flow, p.Name)
	each(out, descPeerLost, p.Dropped, flow, p.Name)
	gauge(out, descPeerWaits, float64(p.Waiting+p.InFlight), flow, p.Name)
	gauge(out, descPeerStandby, float64(p.Standby), flow, p.Name)
	counter(out, descPeerMoves, p.Moves, flow, p.Name)
	if p.Named != "" {
		counter(out, descPeerFollowed, p.Followed, flow, p.Name)
	}
	counter(out, descPeerFailed, p.Failures, flow, p.Name)
	for i := range p.Paths {
		one := &p.Paths[i]
		gauge(out, descPathUp, truth(one.State == "connected"), flow, p.Name, one.Device, one.Address)
		counter(out, descPathSent, one.Messages, flow, p.Name, one.Device, one.Address)
		counter(out, descPathTaken, one.Connections, flow, p.Name, one.Device, one.Address)
		counter(out, descPathFailed, one.Failures, flow, p.Name, one.Device, one.Address)
		counter(out, descPathProbes, one.Probes, flow, p.Name, one.Device, one.Address)
	}
}

func collectBlocks(out chan<- prometheus.Metric, flow string, b *status.Blocks) {
	each(out, descRequests, map[string]uint64{"requested": b.Requests, "served": b.Served, "retried": b.Retried, "waited": b.Waited, "abandoned": b.Abandoned}, flow)
	each(out, descTurnedAway, both(b.Refused, b.TurnedAway), flow)
	each(out, descHandshakes, b.Handshakes, flow)
	counter(out, descServed, b.Bytes, flow)
	for op, c := range map[string]*status.Cache{"frame": &b.Frames, "extent": &b.Extents} {
		each(out, descCache, map[string]uint64{"hit": c.Hits, "miss": c.Misses, "evicted": c.Evictions, "failed": c.Failed}, flow, op)
	}
	if b.Discarded != nil {
		counter(out, descKept, b.Kept, flow, "kept")
		each(out, descKept, b.Discarded, flow)
	}
}

func collectHosts(out chan<- prometheus.Metric, flow string, h *status.Hosts) {
	gauge(out, descHosts, float64(h.Hosts), flow)
	gauge(out, descHostQueues, float64(h.Queues), flow)
	each(out, descCommands, h.Commands, flow)
	each(out, descCommandBytes, h.Bytes, flow)
	counter(out, descCommandsWaited, h.Waited, flow)
	each(out, descQueuesRefused, h.Rejected, flow)
	each(out, descQueuesEnded, map[string]uint64{"broken": h.Ended - min(h.Expired, h.Ended), "silent": h.Expired, "unproven": h.Unproven, "gave_way": h.GaveWay}, flow)
	for i := range h.Namespaces {
		if n := &h.Namespaces[i]; !n.Leaving { // another namespace may have its number
			each(out, descSpaceCommands, n.Commands, flow, n.Subsystem, strconv.Itoa(n.ID))
			each(out, descSpaceBytes, n.Bytes, flow, n.Subsystem, strconv.Itoa(n.ID))
			gauge(out, descSpaceANA, 1, flow, n.Subsystem, strconv.Itoa(n.ID), n.ANA)
		}
	}
	for i := range h.Connected {
		c := &h.Connected[i]
		gauge(out, descHostHas, float64(c.Queues), flow, c.Name)
		each(out, descHostCommands, c.Commands, flow, c.Name)
		each(out, descHostBytes, c.Bytes, flow, c.Name)
	}
}

// both returns the sums of two counts by reason.
func both(a, b map[string]uint64) map[string]uint64 {
	sum := maps.Clone(a)
	for why, n := range b {
		sum[why] += n
	}
	return sum
}

// collectRDMA sends the counters of the RDMA ports on interfaces of flows, and of the ports that
// this process has in software. A capture on the interface does not see the packets that such a
// port receives.
func collectRDMA(out chan<- prometheus.Metric, all []status.Flow) {
	done := make(map[string]bool)
	for i := range all {
		iface := all[i].From
		if done[iface] {
			continue
		}
		done[iface] = true
		ports, _ := verbs.PortsOf(iface) // leave out ports that cannot be read, and keep all other metrics
		for _, p := range ports {
			counters, _ := verbs.ReadCounters(p.Device, p.Port)
			collectCounters(out, iface, p.Device, counters)
		}
	}
	for _, d := range roce.Opened() {
		collectRoCE(out, d.Name(), d.Counters())
	}
}

// collectRoCE sends the counters of RoCE in software on an interface. They only rise.
func collectRoCE(out chan<- prometheus.Metric, iface string, counters []roce.Counter) {
	for _, c := range counters {
		d := newDesc("rdma_roce_"+c.Name+"_total", "A counter of RoCE in software on the interface.", "interface", "device")
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(c.Value), iface, "roce:"+iface)
	}
}

// collectCounters sends the counters of one port. They are untyped, since the kernel does not say
// whether a counter may fall. If names differ only in characters that a metric's name cannot have,
// they become one metric with one value.
func collectCounters(out chan<- prometheus.Metric, iface, device string, counters []verbs.Counter) {
	sent := make(map[string]bool)
	for _, c := range counters {
		name := counterName(c)
		if sent[name] {
			continue
		}
		sent[name] = true
		d := newDesc(name, "A counter of the RDMA port on the interface, by the kernel's name for it.", "interface", "device")
		out <- prometheus.MustNewConstMetric(d, prometheus.UntypedValue, float64(c.Value), iface, device)
	}
}

// counterName returns the metric of a counter. The counters of ports and of devices have different
// prefixes.
func counterName(c verbs.Counter) string {
	prefix := "rdma_port_"
	if c.Hardware {
		prefix = "rdma_hw_"
	}
	return prefix + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(c.Name))
}
