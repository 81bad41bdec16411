// Package xdp opens AF_XDP sockets on memory that the caller owns.
//
// An AF_XDP socket has four rings that it shares with the kernel. The fill ring carries empty
// frames to the driver, and the rx ring returns them full. The tx ring carries full frames out, and
// the completion ring returns them. The frames are in a umem.Region. This package registers the
// region with the kernel and maps no packet memory of its own. So a disk or another interface reads
// a packet where the network card wrote it.
//
// [Open] opens one interface: one XDP program (package bpf), one registration of the region, and one [Port]
// for each receive queue. The queues share the registration, and each has its own rings. Packets arrive
// from [Interface.Start] until [Interface.Stop]. Before and after, they go to the kernel.
//
// Modes. With zero copy the network card writes into the frames. Otherwise the kernel copies each packet
// once. A [Policy] says which is acceptable, and [Interface.Granted] which the kernel granted and why.
//
// Clocks. A packet's arrival time is the system's clock, read by the program or by Recv. With
// Config.CardClock it is the clock of the card, if the driver gives it to programs. The epoch of
// that clock depends on the program that set it. umem.Side has the clock of each packet.
//
// Accounting. [Interface.Ledger] counts every packet that reached the interface as received, left
// to the kernel, or lost, with the reason.
//
// Threads. Each Port belongs to the thread of its Holder's Book. Any goroutine may read its Stats and use
// an Interface. Close the ports on their threads, or after those have stopped, then close the Interface.
//
// Lifetime. Close of a port returns every frame when the kernel can no longer access it. The region
// stays registered until the last port of an interface is closed.
//
// The oldest kernel is 6.1. Packets of several frames need 6.6. Sockets need CAP_NET_RAW, the
// program CAP_BPF and CAP_NET_ADMIN.
package xdp
