// Package group keeps one log on several members. It decides who leads, what each member's log must
// contain, and which records are committed. It does no I/O.
//
// # Epochs
//
// Elections (package election) give each epoch at most one leader. A member that enters an epoch
// makes its vote durable, then ends the links of earlier epochs, and only then votes or reports. So
// an earlier leader cannot commit anything after a majority has entered a later epoch.
//
// The leader of an epoch asks all members for a [Report]. When it has those of a majority, one of
// them has every committed record: the one whose last record has the highest epoch and position. The
// leader fetches what it lacks from that member, cuts off what that member does not have, and
// appends a record of its own epoch. When that record is committed it takes records from clients.
// Each follower cuts off what the leader does not have, and then gets the leader's records over a
// link in order.
//
// # Commits
//
// A record is committed when a majority has it as safely as the log promises, and a record of the
// leader's own epoch after it or the record itself, too. Followers learn it from the leader.
//
// # Members that forget
//
// A member that may have lost records that it acknowledged is recovering. Its report does not count
// before it has all records that the leader had when it came. If too few members can count, the
// leader needs the reports of all.
//
// # Witness
//
// A witness votes and has no records. In a group with a witness a record is committed when every
// other voter has it.
//
// Nothing here reads a clock. A [Member] belongs to one goroutine.
package group
