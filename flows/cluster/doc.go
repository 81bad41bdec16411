// Package cluster says where the daemons are that flows name. A flow names a peer as NAME/FLOW, and not by an address.
// A program names a state that it reads as NAME/STATE.
//
// [Names] is where two sides meet. An engine tells it where daemons are: the configuration (static), or etcd (package
// flows/cluster/etcd). Senders ask it through a [Place], and wait there for a change. A name that an engine does not
// find any more keeps its last addresses: a running flow must not end because its registry is away.
//
// [Record] is what a daemon registers of itself. Records come from a service that other machines write to, so they are
// hostile until [Parse] has checked them. A record that is refused is counted with its reason, and the last good one
// stays in use.
//
// Nothing here does I/O. Any goroutine may call everything.
package cluster
