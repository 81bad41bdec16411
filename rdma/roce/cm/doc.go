// Package cm is the connection manager of RoCE in user space. It does for a device
// of package roce what the kernel's rdma_cm does for its devices, so that programs that
// use rdma_cm (rping, ib_write_bw -R, NVMe over RDMA) can connect.
//
//	program:    cm.Manager, Listener, Request, Route, Conn    see package rdma/cm
//	                │
//	Manager:    lock ── machine                               the protocol, without I/O or clock
//	                │
//	goroutine:  queue pair 1, address handles                 datagrams (package mad)
//
// The protocol is chapter 12 of the IBTA specification, volume 1. A REQ is answered by a
// REP or a REJ, and a REP by an RTU. Each is repeated until it is answered. A connection
// ends by DREQ and DREP, or by silence, and is kept for a while in time-wait.
// Connections are RC, to services of the port space TCP.
//
// Limits. Waiting requests are bounded by each listener's backlog, connections by
// Config.Connections; address handles and queued messages have their own bounds. The
// manager refuses or drops the excess, and counts it. A request from an address that does
// not answer ARP costs one lookup, which newer ones replace. A connection that the peer
// has not confirmed ends after HalfOpenTime, or a newer one replaces it.
//
// Trust. Nothing is encrypted, and the address is all that identifies a peer. A message
// counts for a connection only from the address of its peer, to ours, with both random
// identifiers. A REQ has none of ours and may be forged: it ends no connection. The
// manager probes the peer first (ProbeTries), and only a peer that does not answer is gone.
//
// Threads are as in package rdma/cm.
package cm
