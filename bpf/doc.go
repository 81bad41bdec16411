// Package bpf loads the XDP program that decides for each packet of an interface whether an AF_XDP
// socket or the kernel receives it.
//
// The program runs in the driver, before the kernel has done any work on the packet. It evaluates a
// [Selection]: a filter (package filter), rules, or a program of the user, an [Object]. Accepted
// packets are redirected to the socket that [Program.SetSocketOf] bound to their receive queue. All
// others go to the kernel unchanged. Each packet is counted under exactly one [Verdict]; their sum
// is the number of packets that the interface received. Redirected packets for which the socket had
// no room are in the statistics of the socket.
//
// # Lifetime
//
// [Load] loads the program and its maps, [Program.Attach] binds it to one interface,
// [Program.Select] replaces the selection under traffic, and [Program.Close] removes everything.
// The attachment is a bpf_link that lives with this process: after a crash the kernel removes it.
// Attach never replaces the program of another process. The error, a [ForeignError], names that
// program. With Config.Dispatcher the program is one of several in libxdp's dispatcher (package
// dispatcher).
//
// # Timestamps
//
// With Config.Timestamps the program writes eight bytes before each packet that it redirects (XDP
// metadata): CLOCK_MONOTONIC in nanoseconds, in the machine's byte order. If the driver has no room
// for metadata, the program sets a word before it redirects the first packet without a timestamp.
// Call [Program.MetaRefused] after taking a batch from the ring and before using its timestamps. If
// it is true, the bytes before any packet may be old. With Config.Device the program also asks the
// driver (bpf_xdp_metadata_rx_timestamp), and writes the time of the card's clock before those
// eight bytes, zero if the card has none. The epoch of that clock depends on the program that set
// it.
//
// # Rules
//
// Any goroutine may call all methods, except that Close must not run at the same time as
// MetaRefused. MetaRefused is one load and the only method for a hot path. The package needs Linux
// 5.18 (multi-buffer XDP and its helpers), CAP_BPF and CAP_NET_ADMIN.
package bpf
