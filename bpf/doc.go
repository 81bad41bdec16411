// Package bpf loads the XDP program that decides, for every packet an interface
// receives, whether an AF_XDP socket or the kernel gets it.
//
// The program runs in the driver, before the kernel has spent anything on the
// packet. It asks a [Selection]: a filter (package filter), rules, or a program of the
// user's own, an [Object]. What that accepts is redirected to the socket that [Program.SetSocket] bound to the packet's
// receive queue; everything else goes on to the kernel untouched, so that the
// host keeps its ARP and its SSH. Each packet is counted under exactly one
// [Verdict]; their sum is what the interface received. Redirected means handed
// to the socket: what the socket had no room for is in its own statistics.
//
// # Lifetime
//
// [Load] puts program and maps into the kernel, [Program.Attach] binds the
// program to one interface, [Program.Select] exchanges the selection while packets
// flow, and [Program.Close] gives everything back. The attachment is a bpf_link
// that lives with this process: after a crash the kernel removes it. A program
// of somebody else is never replaced; it is named in the error instead, of type
// [ForeignError].
//
// With Config.Dispatcher the program is one of several in libxdp's dispatcher (package dispatcher), which
// Attach, Select and Close exchange for another. There it may outlive its process, if others have
// exchanged the dispatcher meanwhile: it then lets every packet pass, since it takes and drops packets only of queues with a
// socket.
//
// # Timestamps
//
// With Config.Timestamps the program writes the time, eight bytes of
// CLOCK_MONOTONIC in nanoseconds in the machine's byte order, right in front of
// each packet it redirects (XDP metadata). A driver without room for metadata
// makes the program set a word that [Program.MetaRefused] reads, before it
// redirects the first packet without a timestamp. Read it after taking a batch
// from the ring and before believing the batch's timestamps: when it is true,
// the bytes in front of any packet may be old.
//
// # The card's clock
//
// With Config.Device the driver is asked as well (bpf_xdp_metadata_rx_timestamp), and
// sixteen bytes are in front of the packet: the time of the card's own clock, zero
// where it has none for this packet, and the eight bytes above. What that clock counts
// from only who set it knows.
//
// # Rules
//
// All methods may be called from any goroutine, except that no call of
// MetaRefused may be running when Close is called. Only MetaRefused belongs on
// a hot path: it is one load, without a system call.
//
// Needs Linux 5.18 (multi-buffer XDP and its helpers); tried on 6.1 to 7.2.
// There memory of BPF objects is charged to the control group, so the memlock
// limit does not matter and is not touched. Needs CAP_BPF and CAP_NET_ADMIN.
package bpf
