// Package flows moves packets from ports to ports, and is what unifiedd runs.
//
// A [Daemon] is one region, some workers and some flows over it, opened from a
// configuration (package config). Each kind of flow is one short file:
//
//	network_storage.go  packets of an interface (package xdp) to segments on a disk (package nvme)
//	rdma_storage.go     messages of RDMA clients (package stream) to a log, which is such segments (package journal)
//	network_rdma.go     packets to RDMA peers, each as a message (package fanout)
//	storage_rdma.go     blocks of a file or disk to RDMA clients who ask (package blocks)
//	storage_network.go  packets of captures (package capfile) to an interface, each at its time
//	rdma_rdma.go        messages of RDMA clients to RDMA peers
//
//	null_*.go, *_null.go  with an end that makes packets (generator), or discards what comes, to measure the other one alone
//
// They are put together from ends: the intake from an interface, the inbox that messages arrive at, the reel that captures are
// read into, the writer to segments, the outbox to peers and the egress by an interface. Frames come from one end, go to the other, come back and are supplied to the first
// again. The pool is touched at the start and at the end only.
//
// Two layouts make records of packets. The packed layout copies each packet once
// into an extent, which is then written whole; the slot layout writes the record
// around the packet where the network card left it, and copies nothing that fits
// one frame. What is copied is counted, by reason.
//
// Threads. A [Worker] is one OS thread that polls its flows in turn and does
// nothing that blocks, allocates or locks per frame. What must wait runs beside it:
// a goroutine per flow watches for failure and reads statistics, and a flow's store
// prepares, names and finishes segments. The worker meets them through atomic
// words, and through channels once per segment.
//
// Order and durability. Batches are numbered as they are submitted; "written" and
// "durable" are always prefixes of that order without a gap, whatever order the disk
// completes in. A flow that is stopped takes no more packets, writes and flushes
// what it has, and only then gives its frames, rings and program back. After a
// crash the next start recovers the files; see package internal/pcapng.
//
// Acknowledgements. A log acknowledges a message when it is received, written or durable, as is configured, and a relay when
// any, most or all of its peers did, always in the order in which messages came. Clients are given credits for receives
// that are posted, never for what a disk or peer has done, and of the frames those have there is a bound: a slow one holds clients
// up, and keeps nobody from connecting.
//
// RDMA devices are open once for all flows that use them, and closed with the last of these.
//
// Faults. What mends without us is waited for, and the status says what it is: an
// interface that is down, a disk that is full or answers nothing. What does not ends the flow: an
// interface or program that is gone, a disk that fails, a device without room. Its
// packets then go to the host again at once, what it received before is written if
// the disk takes it, its error stays in the status, and it may be started again.
// Other flows go on.
//
// Nothing is lost silently: a sink that cannot take more stops the polling of its
// source, the kernel's rings then say what was lost, and [FlowStatus] adds it all up.
package flows
