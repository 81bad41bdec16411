// Package manager is the connection manager of RoCE in software: what the kernel's rdma_cm does for its devices, over queue pair 1 of a
// device of package roce. Programs that use rdma_cm (rping, ib_write_bw -R, NVMe over RDMA) connect to it, and it to them.
//
//	program:   cm.Manager, Listener, Request, Route, Conn      see package cm
//	               │
//	Manager:   lock ── machine                                 the protocol, without I/O and without a clock
//	               │
//	goroutine: queue pair 1, addresses to peers                     datagrams (package mad) that come and go
//
// The protocol is that of the IBTA specification, volume 1, chapter 12: a REQ is answered by a REP or a REJ, and that by an RTU; each is said
// again until it is answered, and answered again when it comes again. The end is a DREQ and a DREP, or nothing for long. What is over is kept
// for a while (time-wait), so that late messages do not meet a new connection. Connections are RC, on one path, to services of the port space TCP.
//
// Limits. What a peer can make the manager keep is bounded: requests that wait by each listener's backlog, connections by Config.Connections, those
// that are over by as many, addresses to peers and messages to be sent by numbers of their own. What is beyond is refused, or dropped, and counted. A
// message is taken once the way to its sender is known, so a request from an address where nobody answers ARP costs one look-up, which gives way to
// newer ones. A connection whose peer has not confirmed it (half open) gives way to newer ones, too, and ends after HalfOpenTime.
//
// Trust. Nothing is encrypted, and who sends is known by address alone: a message counts for a connection only if it comes from the address
// of its peer, to ours, and names both identifiers, which are random. A REQ names none of ours, and may be forged by who knows a peer's address, card and
// queue pair. It ends no connection: the peer is asked (ProbeTries), and only one that does not answer has gone.
//
// Threads. As package cm says. A manager has one goroutine, and a few that wait for the network. Nothing here is on the path of
// packets of connections.
package manager
