// Package bpf loads the XDP program that decides for each packet of an interface whether an AF_XDP
// socket or the kernel receives it.
//
// The program runs in the driver, before the kernel has done any work on the packet. It asks a
// [Selection]: a filter (package filter), rules, or a program of the user, an [Object]. Accepted
// packets are redirected to the socket that [Program.SetSocket] bound to their receive queue. All
// others go to the kernel unchanged, so that the host keeps its ARP and its SSH. Each packet is
// counted under exactly one [Verdict]. Their sum is the number of packets that the interface
// received. Redirected packets for which the socket had no room are in the statistics of the
// socket.
//
// # Lifetime
//
// [Load] loads the program and its maps, [Program.Attach] binds it to one interface,
// [Program.Select] exchanges the selection under traffic, and [Program.Close] removes everything.
// The attachment is a bpf_link that lives with this process: after a crash the kernel removes it.
// The program of another process is never replaced. The error, a [ForeignError], names it.
//
// With Config.Dispatcher the program is one of several in libxdp's dispatcher (package
// dispatcher). Attach, Select and Close exchange that dispatcher. If another process has exchanged
// it too, the program may outlive its process. It then lets every packet pass, since it takes and
// drops packets only of queues with a socket.
//
// # Timestamps
//
// With Config.Timestamps the program writes the time before each packet that it redirects (XDP
// metadata): eight bytes of CLOCK_MONOTONIC in nanoseconds, in the machine's byte order. If the
// driver has no room for metadata, the program sets a word before it redirects the first packet
// without a timestamp; [Program.MetaRefused] reads it. Read it after a batch was taken from the
// ring and before its timestamps are used. If it is true, the bytes before any packet may be old.
//
// # The card's clock
//
// With Config.Device the program also asks the driver (bpf_xdp_metadata_rx_timestamp), and writes
// sixteen bytes: the time of the card's clock, zero if the card has none for this packet, and the
// eight bytes above. The epoch of that clock is that of whoever set it.
//
// # Rules
//
// Any goroutine may call all methods, except that Close must not run beside MetaRefused. Only
// MetaRefused is for a hot path: it is one load, without a system call.
//
// It needs Linux 5.18 (multi-buffer XDP and its helpers), and was tried on 6.1 to 7.2. There the
// memory of BPF objects is charged to the control group, so the memlock limit does not matter and
// is not changed. It needs CAP_BPF and CAP_NET_ADMIN.
package bpf
