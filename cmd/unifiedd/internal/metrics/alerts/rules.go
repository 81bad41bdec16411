package alerts

import (
	"strings"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
)

// Severities. Critical: data are lost, or will be. Warning: look at it today. Info: slower than it could be.
const (
	critical = "critical"
	warning  = "warning"
	info     = "info"
)

// rule is one alert. Its expression has no value of a particular machine.
type rule struct {
	name     string
	expr     string
	since    time.Duration // how long the expression must hold
	severity string
	summary  string // $labels.NAME is replaced by the value of a label
	remedy   string
	// fires are series for which the alert fires after ten minutes of samples at intervals of 15 s, in the
	// notation of promtool, and labels are those of the alert.
	fires  []series
	labels map[string]string
}

// series is a time series in promtool's notation.
type series struct{ name, values string }

// rules are all alerts.
var rules = []rule{
	{
		name: "UnifieddDown", expr: `up{job=~".*unifiedd.*"} == 0`, since: 2 * time.Minute, severity: critical,
		summary: "unifiedd on $labels.instance does not answer", remedy: "See systemctl status unifiedd, and its log. It may have been killed, or may not have started for want of huge pages: unifiedd doctor -c FILE.",
		fires: []series{{`up{job="unifiedd",instance="a"}`, "0x60"}}, labels: map[string]string{"job": "unifiedd", "instance": "a"},
	},
	{
		name: "UnifieddRestarts", expr: `changes(process_start_time_seconds[15m]) > 1 and on(instance, job) unifiedd_region_bytes`, since: 0, severity: critical,
		summary: "unifiedd on $labels.instance was started several times within 15 minutes", remedy: "Its log says why it ended: the kernel's log if the kernel killed it.",
		fires:  []series{{`process_start_time_seconds{job="unifiedd",instance="a"}`, "100x10 200x10 300x40"}, {`unifiedd_region_bytes{job="unifiedd",instance="a"}`, "1x60"}},
		labels: map[string]string{"job": "unifiedd", "instance": "a"},
	},
	flow("UnifieddFlowDown", `unifiedd_flow_up == 0`, time.Minute, critical, "flow $labels.flow does not run",
		"unifiedd status says why. A flow that was stopped by hand is reported, too.", "unifiedd_flow_up", "0x60"),
	flow("UnifieddFlowWaits", `unifiedd_flow_waiting == 1`, time.Minute, critical, "flow $labels.flow waits for its interface, disk or peer",
		"unifiedd status says what it waits for: a card that is down, or a disk that is full or does not answer.", "unifiedd_flow_waiting", "1x60"),
	lost("UnifieddRingFull", "lost_ring_full", "lost_ring_full"),
	// The kernel counts the same when the rings are too short for the sleep of the worker as when the region has no
	// frame left. Only in the second case the flow waited for its sink, or held as many frames as it may.
	lost("UnifieddNoFrames", "lost_no_frames", "lost_no_frames").
		with(" and on(job, instance, flow) "+waited, series{on("unifiedd_stalls_total", `flow="f"`), "0+5x60"}),
	lost("UnifieddRingShort", "lost_no_frames", "lost_ring_full").with(" unless on(job, instance, flow) " + waited),
	lost("UnifieddCardFull", "lost_missed", "lost_missed"),
	lost("UnifieddWriteFailed", "write_failed", "write_failed"),
	lost("UnifieddProgramSlow", "slow_program", "slow_program"),
	{
		name: "UnifieddPacketsLost", severity: warning, since: time.Minute,
		expr:    `sum by (job, instance, flow, reason) (rate(unifiedd_dropped_packets_total{reason!~"filter_dropped|beyond_count|duplicate|lost_ring_full|lost_no_frames|lost_missed|write_failed|slow_program|not_matched|other_link_type"}[5m])) > 0`,
		summary: "flow $labels.flow loses packets: $labels.reason", remedy: "docs/reference/reasons.md has each reason, and what to do.",
		fires:  []series{{`unifiedd_dropped_packets_total{job="unifiedd",instance="a",flow="f",interface="eth1",reason="mirror_full"}`, "0+5x60"}},
		labels: map[string]string{"job": "unifiedd", "instance": "a", "flow": "f", "reason": "mirror_full"},
	},
	{
		name: "UnifieddDiskErrors", severity: critical, since: 0,
		expr:    `sum by (job, instance, flow, reason) (increase(unifiedd_disk_errors_total[5m])) > 0`,
		summary: "the disk of flow $labels.flow fails: $labels.reason", remedy: "ENOSPC: the disk is full. EIO: look at the kernel's log and at smartctl or nvme smart-log.",
		fires:  []series{{`unifiedd_disk_errors_total{job="unifiedd",instance="a",flow="f",reason="EIO"}`, "0x30 0+1x30"}},
		labels: map[string]string{"job": "unifiedd", "instance": "a", "flow": "f", "reason": "EIO"},
	},
	flow("UnifieddDiskFull", `increase(unifiedd_disk_pauses_total[5m]) > 0 or unifiedd_disk_free_bytes < unifiedd_disk_floor_bytes`, 0, critical, "flow $labels.flow has no room on its disk",
		"Nothing is written until there is room above to.keep_free. Remove other files, or keep fewer segments.", "unifiedd_disk_pauses_total", "0x30 0+1x30"),
	flow("UnifieddBackPressure", `rate(unifiedd_flow_paused_seconds_total[5m]) > 0.05`, 2*time.Minute, warning, "the source of flow $labels.flow often has to wait for its disk or peers",
		"The disk or the peers are slower than the traffic. Packets wait in the rings, and are lost when those are full.", "unifiedd_flow_paused_seconds_total", "0+3x60"),
	flow("UnifieddDiskBehind", `deriv(unifiedd_waiting_packets[5m]) > 0 and unifiedd_waiting_packets > 100000`, 5*time.Minute, warning, "flow $labels.flow receives faster than its disk makes durable",
		"See unifiedd_stalls_total and the disk's latency (iostat).", "unifiedd_waiting_packets", "100000+1000x60"),
	{
		name: "UnifieddWorkerStarved", expr: `rate(unifiedd_worker_absences_total[5m]) > 0.1`, since: 2 * time.Minute, severity: warning,
		summary: "workers on $labels.instance often do not poll for 20 ms or longer", remedy: "Something else has their CPUs: give each worker a CPU of its own (workers[].cpu), and keep others off it.",
		fires: []series{{`unifiedd_worker_absences_total{job="unifiedd",instance="a"}`, "0+10x60"}}, labels: map[string]string{"job": "unifiedd", "instance": "a"},
	},
	daemon("UnifieddClockApart", `abs(unifiedd_time_seconds - timestamp(unifiedd_time_seconds)) > 2`, 0, warning, "the clocks of $labels.instance and of Prometheus differ by seconds",
		"Times in captures and logs may be wrong. Look at chronyc tracking or timedatectl on both.", "unifiedd_time_seconds", "1000x60"),
	daemon("UnifieddClockSet", `increase(unifiedd_clock_steps_total[15m]) > 0`, 0, warning, "the clock of $labels.instance was set",
		"Times in captures and logs jump there: unifiedd status says by how much. Have chrony adjust its rate instead (makestep only at the start).", "unifiedd_clock_steps_total", "0x30 1x30"),
	daemon("UnifieddCertificateExpires", `unifiedd_certificate_expires_timestamp_seconds - time() < 14 * 86400 and unifiedd_certificate_expires_timestamp_seconds > time()`, 0, warning, "the certificate of unifiedd on $labels.instance expires within two weeks",
		"Replace the files of tls, and unifiedd reload. Sessions go on.", "unifiedd_certificate_expires_timestamp_seconds", "86400x60"),
	daemon("UnifieddCertificateExpired", `unifiedd_certificate_expires_timestamp_seconds <= time()`, 0, critical, "the certificate of unifiedd on $labels.instance has expired",
		"Peers refuse it: replace the files of tls, and unifiedd reload.", "unifiedd_certificate_expires_timestamp_seconds", "60x60"),
	daemon("UnifieddReloadFailed", `unifiedd_config_last_reload_successful == 0`, 0, warning, "the last reload on $labels.instance failed",
		"The daemon runs with the configuration before. unifiedd check -c FILE says what is wrong.", "unifiedd_config_last_reload_successful", "0x60"),
	daemon("UnifieddOrdinaryPages", `unifiedd_region_ordinary_pages == 1`, 10*time.Minute, info, "the region on $labels.instance has no huge pages",
		"Every device is slower with ordinary pages. Reserve huge pages (region.reserve, or vm.nr_hugepages).", "unifiedd_region_ordinary_pages", "1x60"),
	flow("UnifieddFarMemory", `unifiedd_far_ends > 0`, 10*time.Minute, info, "parts of flow $labels.flow are on another NUMA node than the region",
		"Set region.node and workers[].cpu to the node of the card.", "unifiedd_far_ends", "1x60"),
	{
		name: "UnifieddCopies", expr: `unifiedd_zero_copy == 0 and max_over_time(unifiedd_zero_copy[1d]) == 1`, since: 5 * time.Minute, severity: warning,
		summary: "flow $labels.flow lost zero copy on $labels.interface", remedy: "unifiedd status says why the driver granted only copy mode.",
		fires:  []series{{`unifiedd_zero_copy{job="unifiedd",instance="a",flow="f",interface="eth1"}`, "1x5 0x60"}},
		labels: map[string]string{"job": "unifiedd", "instance": "a", "flow": "f", "interface": "eth1"},
	},
	daemon("UnifieddFilesExhausted", `process_open_fds / process_max_fds > 0.9 and on(instance, job) unifiedd_region_bytes`, 5*time.Minute, warning, "unifiedd on $labels.instance has almost as many files open as it may",
		"Raise LimitNOFILE of the unit.", "process_open_fds", "95x60", series{`process_max_fds{job="unifiedd",instance="a"}`, "100x60"}, series{`unifiedd_region_bytes{job="unifiedd",instance="a"}`, "1x60"}),
	peer("UnifieddPeerDown", `unifiedd_peer_up == 0`, time.Minute, critical, "peer $labels.host of flow $labels.flow is not connected",
		"unifiedd status has the error. The peer may be down, the network, or a certificate may have expired.", "unifiedd_peer_up", "0x60"),
	{
		name: "UnifieddPeerLoses", expr: `sum by (job, instance, flow, host, reason) (rate(unifiedd_peer_dropped_messages_total[5m])) > 0`, since: time.Minute, severity: warning,
		summary: "peer $labels.host does not get messages of flow $labels.flow: $labels.reason", remedy: "The peer is slower than the flow, or away: see its policy.",
		fires:  []series{{`unifiedd_peer_dropped_messages_total{job="unifiedd",instance="a",flow="f",host="h",reason="drop_oldest"}`, "0+2x60"}},
		labels: map[string]string{"job": "unifiedd", "instance": "a", "flow": "f", "host": "h", "reason": "drop_oldest"},
	},
	reason("UnifieddCertificateRefused", `increase(unifiedd_failed_handshakes_total{reason="tls"}[10m]) > 0`, warning, "clients of flow $labels.flow fail in TLS",
		"A certificate has expired, or is of another authority. The daemon's log has the client's address.", "unifiedd_failed_handshakes_total", "tls"),
	reason("UnifieddHandshakesFail", `increase(unifiedd_failed_handshakes_total{reason!~"tls|closed|cancelled"}[10m]) > 3`, warning, "clients of flow $labels.flow cannot connect: $labels.reason",
		"docs/reference/reasons.md has each reason, and what to do.", "unifiedd_failed_handshakes_total", "version"),
	reason("UnifieddClientsRefused", `increase(unifiedd_refused_total{reason!~"not_leader|closing"}[10m]) > 3`, warning, "clients of flow $labels.flow are refused: $labels.reason",
		"docs/reference/reasons.md has each reason, and what to do.", "unifiedd_refused_total", "not_permitted"),
	reason("UnifieddHostQueuesEnded", `increase(unifiedd_nvme_ended_queues_total[10m]) > 0`, warning, "queues of NVMe hosts of flow $labels.flow were ended: $labels.reason",
		"silent: the host or the network is gone. unproven: its key is wrong.", "unifiedd_nvme_ended_queues_total", "silent"),
	reason("UnifieddHostQueuesRefused", `increase(unifiedd_nvme_refused_queues_total[10m]) > 0`, warning, "queues of NVMe hosts of flow $labels.flow were refused: $labels.reason",
		"no_resources: raise to.clients. Any other reason: the host's request was wrong.", "unifiedd_nvme_refused_queues_total", "no_resources"),
	daemon("UnifieddRegistryGone", `unifiedd_cluster_up == 0`, time.Minute, critical, "etcd does not answer unifiedd on $labels.instance",
		"Flows go on, and peers that move are not followed meanwhile. unifiedd status has the error, and unifiedd doctor -c FILE asks each endpoint.", "unifiedd_cluster_up", "0x60"),
	daemon("UnifieddNotRegistered", `unifiedd_cluster_registered == 0 and on(instance, job) unifiedd_cluster_up == 1`, 2*time.Minute, critical, "unifiedd on $labels.instance is not registered, and peers that look for it do not find it",
		"Another daemon may have its name (cluster.name): unifiedd cluster status says so.", "unifiedd_cluster_registered", "0x60", series{`unifiedd_cluster_up{job="unifiedd",instance="a"}`, "1x60"}),
	{
		name: "UnifieddNotFound", severity: info, since: 2 * time.Minute,
		expr:    `unifiedd_cluster_unregistered > 0`,
		summary: "others cannot find a $labels.kind of unifiedd on $labels.instance by its name", remedy: "unifiedd status names it, and says why. It may be meant for this host alone; otherwise say a fixed port and an address that others reach in listen.",
		fires:  []series{{on("unifiedd_cluster_unregistered", `kind="flow"`), "1x30"}},
		labels: map[string]string{"job": "unifiedd", "instance": "a", "kind": "flow"},
	},
	{
		name: "UnifieddRecordsRefused", severity: warning, since: 0,
		expr:    `increase(unifiedd_cluster_refused_records_total[10m]) > 0`,
		summary: "unifiedd on $labels.instance refuses the records of other daemons: $labels.reason", remedy: "A daemon of another release, or somebody else, writes them: unifiedd cluster status names them.",
		fires:  []series{{on("unifiedd_cluster_refused_records_total", `reason="bad_version"`), "0x30 0+1x30"}},
		labels: map[string]string{"job": "unifiedd", "instance": "a", "reason": "bad_version"},
	},
	flow("UnifieddGroupWithoutLeader", `unifiedd_group_leader_known == 0`, 30*time.Second, critical, "the member of flow $labels.flow knows no leader of its group",
		"Clients cannot append. More than half of the members must run, and reach one another: unifiedd group status.", "unifiedd_group_leader_known", "0x60"),
	flow("UnifieddGroupElections", `increase(unifiedd_group_elections_total[15m]) > 3`, 0, warning, "the group of flow $labels.flow often elects a leader",
		"Leaders pause for longer than suspect, or the network loses messages: compare unifiedd_group_longest_silence_seconds with suspect.", "unifiedd_group_elections_total", "0+1x60"),
	flow("UnifieddGroupRecovers", `unifiedd_group_recovering == 1`, 10*time.Minute, warning, "the member of flow $labels.flow lacks records and does not get them",
		"unifiedd group status says from whom it waits for them.", "unifiedd_group_recovering", "1x60"),
	flow("UnifieddRecordsLost", `unifiedd_log_lost_messages > 0`, 0, critical, "the log of flow $labels.flow lacks messages that its disk had called durable",
		"The disk lies about flushes, or was changed: unifiedd log verify.", "unifiedd_log_lost_messages", "3x60"),
	flow("UnifieddSegmentsUnreadable", `unifiedd_unreadable_segments > 0`, 0, warning, "segments of flow $labels.flow cannot be read",
		"Their content is missing. unifiedd log verify, or capinfos of a capture, names them.", "unifiedd_unreadable_segments", "1x60"),
	flow("UnifieddIndexFails", `increase(unifiedd_index_failures_total[1h]) > 0`, 0, info, "segments of flow $labels.flow stay without an index",
		"The daemon's log says why. unifiedd index makes them.", "unifiedd_index_failures_total", "0x30 1x30"),
	{
		name: "UnifieddProgramBreaksProtocol", severity: warning, since: 0,
		expr:    `increase(unifiedd_attach_ended_total{reason=~"bad_.*|too_long"}[10m]) > 0`,
		summary: "program $labels.program breaks the protocol of attached programs: $labels.reason", remedy: "The program uses frames that are not its own, or is of another release: docs/how-to/attach.md has each reason.",
		fires:  []series{{on("unifiedd_attach_ended_total", `program="p",reason="bad_index"`), "0x30 0+1x30"}},
		labels: map[string]string{"job": "unifiedd", "instance": "a", "program": "p", "reason": "bad_index"},
	},
	{
		name: "UnifieddProgramsRefused", severity: warning, since: 0,
		expr:    `increase(unifiedd_attach_refused_total[10m]) > 3`,
		summary: "programs on $labels.instance may not attach: $labels.reason", remedy: "Their user or name is not in attach.programs. The daemon's log has the process.",
		fires:  []series{{on("unifiedd_attach_refused_total", `reason="not_permitted"`), "0x30 0+1x30"}},
		labels: map[string]string{"job": "unifiedd", "instance": "a", "reason": "not_permitted"},
	},
	{
		name: "UnifieddChannelLoses", severity: warning, since: time.Minute,
		expr:    `rate(unifiedd_channel_lost_total[5m]) > 0`,
		summary: "reader $labels.reader of channel $labels.channel loses messages", remedy: "It reads more slowly than the writer writes: make it faster, raise slots, or give it the policy wait.",
		fires:  []series{{on("unifiedd_channel_lost_total", `channel="c",reader="r"`), "0+5x60"}},
		labels: map[string]string{"job": "unifiedd", "instance": "a", "channel": "c", "reader": "r"},
	},
	{
		name: "UnifieddChannelGaps", severity: warning, since: 0,
		expr:    `increase(unifiedd_channel_gaps_total[10m]) > 0`,
		summary: "channel $labels.channel of flow $labels.flow lost messages between two connections of its peer", remedy: "The peer was away for longer than the channel has slots for.",
		fires:  []series{{on("unifiedd_channel_gaps_total", `flow="f",channel="c"`), "0x30 0+1x30"}},
		labels: map[string]string{"job": "unifiedd", "instance": "a", "flow": "f", "channel": "c"},
	},
	{
		name: "UnifieddStateRefuses", severity: warning, since: 0,
		expr:    `increase(unifiedd_state_refused_updates_total[10m]) > 0`,
		summary: "state $labels.state refuses updates: $labels.reason", remedy: "docs/reference/reasons.md has each reason, and what to do.",
		fires:  []series{{on("unifiedd_state_refused_updates_total", `state="s",reason="too_long"`), "0x30 0+1x30"}},
		labels: map[string]string{"job": "unifiedd", "instance": "a", "state": "s", "reason": "too_long"},
	},
	{
		name: "UnifieddStatePeersRefused", severity: warning, since: 0,
		expr:    `sum by (job, instance, state, reason) (increase(unifiedd_state_refused_peers_total[10m]) or increase(unifiedd_state_failed_handshakes_total{reason!~"closed|cancelled"}[10m])) > 3`,
		summary: "peers cannot read state $labels.state: $labels.reason", remedy: "docs/reference/reasons.md has each reason, and what to do.",
		fires:  []series{{on("unifiedd_state_refused_peers_total", `state="s",reason="not_permitted"`), "0x30 0+1x30"}},
		labels: map[string]string{"job": "unifiedd", "instance": "a", "state": "s", "reason": "not_permitted"},
	},
	flow("UnifieddReplayLate", `rate(unifiedd_replay_late_packets_total[5m]) > 0`, time.Minute, info, "flow $labels.flow sends packets later than to.late after their time",
		"Use to.spin, or a CPU for the worker alone.", "unifiedd_replay_late_packets_total", "0+5x60"),
}

// waited holds for flows that waited for their sink.
const waited = `(rate(unifiedd_stalls_total[5m]) > 0 or rate(unifiedd_flow_paused_seconds_total[5m]) > 0)`

// with returns the rule with more conditions, and what makes them hold.
func (r rule) with(condition string, more ...series) rule {
	r.expr, r.fires = r.expr+condition, append(r.fires, more...)
	return r
}

// on returns the name of a series of a daemon with further labels.
func on(metric, labels string) string {
	if labels != "" {
		labels = "," + labels
	}
	return metric + `{job="unifiedd",instance="a"` + labels + `}`
}

// daemon returns an alert about a daemon as a whole.
func daemon(name, expr string, since time.Duration, severity, summary, remedy, metric, values string, more ...series) rule {
	return rule{name, expr, since, severity, summary, remedy, append([]series{{on(metric, ""), values}}, more...), map[string]string{"job": "unifiedd", "instance": "a"}}
}

// flow returns an alert about a flow.
func flow(name, expr string, since time.Duration, severity, summary, remedy, metric, values string) rule {
	return rule{name, expr, since, severity, summary, remedy, []series{{on(metric, `flow="f"`), values}}, map[string]string{"job": "unifiedd", "instance": "a", "flow": "f"}}
}

// peer returns an alert about a peer of a flow.
func peer(name, expr string, since time.Duration, severity, summary, remedy, metric, values string) rule {
	r := flow(name, expr, since, severity, summary, remedy, metric, values)
	r.fires[0].name, r.labels["host"] = on(metric, `flow="f",host="h"`), "h"
	return r
}

// reason returns an alert about a counter of a flow that has reasons.
func reason(name, expr, severity, summary, remedy, metric, word string) rule {
	r := flow(name, expr, 0, severity, summary, remedy, metric, "0x30 0+1x30")
	r.fires[0].name, r.labels["reason"] = on(metric, `flow="f",reason="`+word+`"`), word
	return r
}

// lost returns an alert about packets that were lost for one reason, with the texts of a reason.
func lost(name, word, as string) rule {
	why := status.Reasons[as]
	return rule{name, `sum by (job, instance, flow, interface) (rate(unifiedd_dropped_packets_total{reason="` + word + `"}[5m])) > 0`, time.Minute, critical,
		"flow $labels.flow loses packets: " + why.Cause, strings.ToUpper(why.Remedy[:1]) + why.Remedy[1:] + ".",
		[]series{{on("unifiedd_dropped_packets_total", `flow="f",interface="eth1",reason="`+word+`"`), "0+5x60"}},
		map[string]string{"job": "unifiedd", "instance": "a", "flow": "f", "interface": "eth1"}}
}
