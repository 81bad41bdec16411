// Package xdp opens AF_XDP sockets on memory the caller owns.
//
// An AF_XDP socket is four rings shared with the kernel. The fill ring carries
// empty frames to the driver, the rx ring brings them back full; the tx ring
// carries full frames out, the completion ring brings them back drained. The
// frames lie in a umem.Region; this package registers it with the kernel and
// never maps packet memory of its own, so that a disk or another interface can
// read a packet where the network card left it.
//
// [Open] takes one interface: one XDP program (package bpf), one registration of
// the region, and one [Port] for each receive queue. The queues share the
// registration and have rings of their own. Packets arrive after
// [Interface.Start], and go to the kernel again after [Interface.Stop].
//
// Modes. With zero copy the network card writes into the frames itself; otherwise
// the kernel copies each packet once. A [Policy] says what is acceptable, and
// [Interface.Granted] what the kernel gave and why not more.
//
// Clocks. A packet's time of arrival is the system's, taken by the program, or by Recv.
// Where a driver gives programs the time of the card's own clock, and Config.CardClock
// wants it, it is that, as the card has it: what it counts from only who set the clock
// knows. umem.Side says for each packet which it is.
//
// Accounting. [Interface.Ledger] says what became of every packet that reached
// the interface: received, left to the kernel, or lost, with the reason.
//
// Threads. Each Port belongs to the thread of its Holder's Book; its Stats may be
// read from anywhere. An Interface may be used from any goroutine. Close the
// ports on their threads, or after those have stopped, then the Interface.
//
// Lifetime. A port's Close gives back every frame once the kernel can no longer
// touch it; the region stays registered until the last port of an interface is
// closed.
//
// The oldest kernel is 6.1; packets of several frames need 6.6. Sockets need
// CAP_NET_RAW, the program CAP_BPF and CAP_NET_ADMIN.
package xdp
