package status

import "time"

// GroupWaits is the state of a member that waits for all others before it votes for the first time.
const GroupWaits = "waiting"

// Group is a member's part in the group that keeps its log.
type Group struct {
	Name   string `json:"name"`
	Member string `json:"member"` // this one
	// State is following, or on the leader what it does: sealing, fetching, beginning or leading. A member that has never
	// voted is waiting until all members are there: see GroupWaits.
	State      string        `json:"state"`
	Leader     string        `json:"leader"` // of the epoch; empty: not known
	Epoch      uint64        `json:"epoch" metric:"group_epoch"`
	Committed  uint64        `json:"committed" metric:"group_position,status:committed"`        // position
	Last       uint64        `json:"last" metric:"group_position,status:last"`                  // position of the last record here, committed or not
	Recovering bool          `json:"recovering" metric:"group_recovering"`                      // the member may lack records that it acknowledged
	Elections  uint64        `json:"elections" metric:"group_elections_total"`                  // that this member has asked for
	Silence    time.Duration `json:"longest_silence_ns" metric:"group_longest_silence_seconds"` // of a leader that went on
	Silent     uint64        `json:"silent_links" metric:"group_silent_links_total"`            // that this member has ended: nothing came over them, and the leader went on
	Sent       uint64        `json:"sent_records" metric:"group_records_total,op:sent"`         // to followers
	Copied     uint64        `json:"copied_bytes"`                                              // of those, read from the segments
	Copies     uint64        `json:"copied_records" metric:"group_copied_records_total"`        // as records
	// Of the followers that get records from the segments, now: records that they lack, get a second, and may get a
	// second beside those that clients append (0: any number, or there are no such followers).
	Lacking   uint64   `json:"lacking_records" metric:"group_lacking_records"`
	CopyRate  uint64   `json:"copies_per_second"`
	CopyLimit uint64   `json:"copies_limit_per_second" metric:"group_copies_limit_per_second"`
	Stalled   uint64   `json:"stalled_links" metric:"group_stalled_links_total"`                        // that this leader has ended: it sent nothing over them, and such a follower lacked records
	Received  uint64   `json:"received_records" metric:"group_records_total,op:received"`               // from leaders
	Fenced    uint64   `json:"fenced_records" metric:"group_fenced_records_total"`                      // that it has appended as the leader, and no other member had confirmed when a later epoch began
	Cut       uint64   `json:"cut_records" metric:"group_cut_records_total"`                            // from its log, because the leader does not have them
	Stale     uint64   `json:"stale_messages" metric:"group_ignored_messages_total,reason:stale_epoch"` // of links of earlier epochs
	Refused   uint64   `json:"refused_messages" metric:"group_ignored_messages_total,reason:not_valid"` // of members, that were not valid
	Dropped   uint64   `json:"dropped_messages" metric:"group_ignored_messages_total,reason:not_sent"`  // to members, of elections
	Untaken   uint64   `json:"untaken_messages" metric:"group_ignored_messages_total,reason:not_taken"` // of members, because too many waited
	Members   []Member `json:"members"`                                                                 // as this one knows them
	// Paths are those over which the leader's records come, if there are several, in the order of preference. Messages
	// counts nothing.
	Paths    []Path `json:"paths,omitempty"`
	PathMode string `json:"path_mode,omitempty"` // standby, or active: the followers of a leader prefer different paths
}

// Members are the members of a group, as its leader knows them. With an error the leader has not said, and they are as the
// member that was asked knows them.
type Members struct {
	Members []Member `json:"members"`
	Error   string   `json:"error,omitempty"`
}

// Member is a member of a group.
type Member struct {
	Name   string `json:"name"` // its number, if the configuration does not have it
	Number uint32 `json:"number"`
	Role   string `json:"role"`               // voter, witness, learner (gets records and does not count) or leaving
	Away   bool   `json:"away"`               // not heard for the time of suspect. The leader knows it
	Safe   uint64 `json:"position,omitempty"` // up to which it has all records as safely as to.acknowledge says. The leader knows it
	Device string `json:"device,omitempty"`   // over which it gets records, if there are several. The leader knows it
	// PathMode is that of its configuration, if there are several paths and a link to it. It should be that of the group
	// here. The leader knows that of its followers, and these know that of the leader.
	PathMode string `json:"path_mode,omitempty"`
	// Version is that of its program. The leader knows those of all members that it hears, and each member that of the
	// leader. Empty: this one has not heard it, or the member is of a release that does not say it.
	Version string `json:"version,omitempty"`
}
