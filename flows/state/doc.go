// Package state has the states of a daemon: memory that one flow writes, and that programs of the host and RDMA peers
// read.
//
// A state is a slice of the region that programs may only map to read; package flows/attach/wire has its layout. The
// worker of the flow that updates it is the only one that writes it. So nothing locks, and readers see by versions and
// checksums whether they were overtaken.
//
// Peers READ the memory. Each state that they may read has a protection domain of its own, in which nothing but this
// memory is registered, and only for RDMA READ. So a peer reaches nothing else, whatever key it guesses. No thread of the
// daemon takes part in a READ: a [Server] only connects queue pairs.
//
// Threads. Apply and Publish belong to the worker of the flow. Every other method may be called from any goroutine.
//
// Lifetime. A state begins empty with the daemon, and stays over the ends and restarts of its flow. Its run number tells
// readers that it has begun empty again.
package state
