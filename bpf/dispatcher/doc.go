// Package dispatcher lets a program run beside others on one network interface, in the
// dispatcher that libxdp and its tools (xdp-loader, xdp-filter) put there.
//
// The kernel runs one XDP program on an interface. libxdp makes that one a dispatcher: a
// program with a function for each of up to ten others, prog0 to prog9, which it calls in
// turn. A component program is loaded as an extension (BPF_PROG_TYPE_EXT) and put in the place
// of such a function by a bpf_link. Whether the next one runs depends on what the one before
// returned. Who is in it, in which order and after which actions the next one runs
// is in a read-only map of the dispatcher. Programs and links are pinned in a
// BPF file system, under xdp/dispatch-INTERFACE-ID, so that they outlive the process that
// made them, and that directory's parent is locked (flock) by whoever changes something. The protocol
// is libxdp's own, version 2, described in lib/libxdp/protocol.org of github.com/xdp-project/xdp-tools.
//
// A dispatcher never changes. To add, exchange or remove a program another one is built with
// all programs that are to be there, pinned, put in the place of the old one on the interface,
// atomically and only if that is still there, and then the old one's pins are removed. Each packet
// meets the one or the other.
//
// # Lifetime
//
// [Find] looks for a dispatcher on an interface, [Interface.Join] puts a program into it and
// gives a [Seat], which exchanges the program, reports whether it still is there, and takes it out. The slot holds the program's link, and no
// pin does, so that the program does not run any more when its process is gone: the dispatcher calls its own function again, which has the
// next program called. When others exchange the dispatcher, though, it runs by a link of theirs, pinned as libxdp pins all, until [Seat.Here] takes that over; and
// if its process is gone already nobody does. What it then does
// to packets is its own matter; that of package bpf lets them pass.
//
// What stays in either case is a pinned program. So each program of ours has a mark, a directory unifiedd-ID
// beside those of the dispatchers, locked as long as the process lives. A program whose mark
// is not locked is dead: [Sweep], and the next Join or exchange by this package, leave it out and remove the mark.
//
// # Rules
//
// Methods may be called from any goroutine, one at a time for each Interface. None is for a hot
// path: each takes a lock that other programs have too, and waits for it up to five seconds.
//
// Needs Linux 5.18, a BPF file system, and CAP_SYS_ADMIN: without that the kernel gives no descriptor of a program
// that somebody else has loaded. As another user than root also CAP_DAC_OVERRIDE, since libxdp's directory is root's.
package dispatcher
