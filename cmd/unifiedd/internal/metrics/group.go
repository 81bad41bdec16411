package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/unifiedd/unifiedd/flows/status"
)

// The metrics of a member of a group.
var (
	descGroupLeads     = describe("group_leads", "1 while this member leads its group.", "flow")
	descGroupKnown     = describe("group_leader_known", "1 while the member knows who leads. Alert if it stays 0.", "flow")
	descGroupEpoch     = describe("group_epoch", "Newest epoch that the member knows. It increases with each election.", "flow")
	descGroupPosition  = describe("group_position", "Position of the member's last record (last), and of the last one that it knows to be committed (committed).", "flow", "status")
	descGroupRecovers  = describe("group_recovering", "1 while the member may lack records that it acknowledged before it ended. Meanwhile it does not count in elections.", "flow")
	descGroupElections = describe("group_elections_total", "Elections that the member asked for.", "flow")
	descGroupSilence   = describe("group_longest_silence_seconds", "Longest time that this member has waited for word of a leader that went on. It stays below to.group.suspect: after that time the member asks for an election. Raise suspect if this is more than half of it.", "flow")
	descGroupSilent    = describe("group_silent_links_total", "Links to the leader that this member has ended because nothing came over them for four times to.group.suspect, though the leader went on. It then gets another link. Look at the RDMA network between the two.", "flow")
	descGroupRecords   = describe("group_records_total", "Records sent to followers and received from leaders. Sent records that were read from segments count as copies, with reason catch_up.", "flow", "op")
	descGroupLacking   = describe("group_lacking_records", "On the leader: records that followers lack which get them from its segments.", "flow")
	descGroupCopies    = describe("group_copied_records_total", "Records that the leader has read from its segments for followers.", "flow")
	descGroupCopyLimit = describe("group_copies_limit_per_second", "Records a second that it may read for them beside its clients: a third more than clients append, and 20000 at least. 0: any number, because nobody appends, or there are no such followers.", "flow")
	descGroupStalled   = describe("group_stalled_links_total", "Links to such followers that the leader has ended because it sent nothing over them for ten seconds, though the follower lacked records. The follower then gets another link. The leader's log says what the link waited for: if it is the follower, look at that one's disk.", "flow")
	descGroupFenced    = describe("group_fenced_records_total", "Records that the member appended as the leader, and that no other member had confirmed when a later epoch began: it was paused or cut off, and went on when another one led already. None of them was acknowledged.", "flow")
	descGroupCut       = describe("group_cut_records_total", "Records that were cut off from the member's log, because the leader does not have them. Their clients send them again.", "flow")
	descGroupIgnored   = describe("group_ignored_messages_total", "Messages between members without effect. stale_epoch: of a link of an earlier epoch. not_valid: malformed, of another group, or with another certificate. not_sent: of elections, while the other member could not be reached, or took none. not_taken: too many waited.", "flow", "reason")
	descGroupPathUp    = describe("group_path_up", "Of a member with several paths: 1 while the leader's records come over this one. A leader gets none.", "flow", "device")
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
