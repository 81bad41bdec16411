// Package election elects the leader of a group and keeps the list of its members. It wraps
// go.etcd.io/raft. A term of raft is an epoch of the group.
//
// Raft's own log has one entry for each election and for each change of the members. Records of the
// group's log never pass through it.
//
// No clock and no random number decides anything. A follower begins an election only when its
// caller says so ([Node.Campaign]); only the leader repeats messages ([Node.Tick]). A candidate asks
// for pre-votes before it changes its term.
//
// The caller does the I/O. After each call of a method it handles [Node.Ready]: it makes the state
// durable, then sends the messages, then calls [Node.Advance]. Messages may be lost, delayed and
// repeated. A Node belongs to one goroutine.
package election
