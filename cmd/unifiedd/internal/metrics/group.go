package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/unifiedd/unifiedd/flows/status"
)

// The metrics of a member of a group.
var (
	descGroupLeads     = describe("group_leads", "1 while this member leads its group.", "flow")
	descGroupKnown     = describe("group_leader_known", "1 while the member knows who leads its group.", "flow")
	descGroupEpoch     = describe("group_epoch", "Newest epoch that the member knows.", "flow")
	descGroupPosition  = describe("group_position", "Position of the member's last record, and of the last one that it knows to be committed.", "flow", "status")
	descGroupRecovers  = describe("group_recovering", "1 while the member may lack records that it acknowledged.", "flow")
	descGroupElections = describe("group_elections_total", "Elections that the member asked for.", "flow")
	descGroupSilence   = describe("group_longest_silence_seconds", "Longest silence of a leader that went on.", "flow")
	descGroupSilent    = describe("group_silent_links_total", "Links to the leader that the member has ended, because nothing came over them though the leader went on.", "flow")
	descGroupRecords   = describe("group_records_total", "Records sent to followers, and received from leaders.", "flow", "op")
	descGroupLacking   = describe("group_lacking_records", "Records that followers lack which get them from the leader's segments.", "flow")
	descGroupCopies    = describe("group_copied_records_total", "Records that the leader has read from its segments for followers.", "flow")
	descGroupCopyLimit = describe("group_copies_limit_per_second", "Records a second that the leader may read for such followers beside its clients. 0: any number, or there are none.", "flow")
	descGroupStalled   = describe("group_stalled_links_total", "Links to such followers that the leader has ended, because it sent nothing over them though the follower lacked records.", "flow")
	descGroupFenced    = describe("group_fenced_records_total", "Records that the member appended as the leader, and that no other member had confirmed when a later epoch began.", "flow")
	descGroupCut       = describe("group_cut_records_total", "Records that were cut off from the member's log, because the leader does not have them.", "flow")
	descGroupIgnored   = describe("group_ignored_messages_total", "Messages between members that had no effect, by reason.", "flow", "reason")
	descGroupPathUp    = describe("group_path_up", "1 while the leader's records come to the member over the path.", "flow", "device")
	descGroupPathTaken = describe("group_path_connections_total", "Times that the member took the path to its leader.", "flow", "device")
	descGroupPathFails = describe("group_path_failures_total", "Times that the path to the leader failed: the member left it, or could not take it.", "flow", "device")
)

// collectGroup sends the metrics of a member of a group.
func collectGroup(out chan<- prometheus.Metric, flow string, g *status.Group) {
	gauge(out, descGroupLeads, truth(g.Leader == g.Member), flow)
	gauge(out, descGroupKnown, truth(g.Leader != ""), flow)
	gauge(out, descGroupEpoch, float64(g.Epoch), flow)
	gauge(out, descGroupPosition, float64(g.Committed), flow, "committed")
	gauge(out, descGroupPosition, float64(g.Last), flow, "last")
	gauge(out, descGroupRecovers, truth(g.Recovering), flow)
	counter(out, descGroupElections, g.Elections, flow)
	gauge(out, descGroupSilence, g.Silence.Seconds(), flow)
	counter(out, descGroupSilent, g.Silent, flow)
	each(out, descGroupRecords, map[string]uint64{"sent": g.Sent, "received": g.Received}, flow)
	gauge(out, descGroupLacking, float64(g.Lacking), flow)
	counter(out, descGroupCopies, g.Copies, flow)
	gauge(out, descGroupCopyLimit, float64(g.CopyLimit), flow)
	counter(out, descGroupStalled, g.Stalled, flow)
	counter(out, descGroupFenced, g.Fenced, flow)
	counter(out, descGroupCut, g.Cut, flow)
	each(out, descGroupIgnored, map[string]uint64{"stale_epoch": g.Stale, "not_valid": g.Refused, "not_sent": g.Dropped, "not_taken": g.Untaken}, flow)
	for i := range g.Paths {
		p := &g.Paths[i]
		gauge(out, descGroupPathUp, truth(p.State == "connected"), flow, p.Device)
		counter(out, descGroupPathTaken, p.Connections, flow, p.Device)
		counter(out, descGroupPathFails, p.Failures, flow, p.Device)
	}
}
