// Package mirror copies the traffic of an interface to a virtual one, from which it can be
// captured while the host goes on with it.
//
//	eth0 ──┬── arrives ─▶ host          a program of a few instructions at tc's two hooks
//	       └── leaves  ◀─ host          clones each packet
//	             │
//	             ▼  queue 0: arrived, queue 1: leaves
//	        ufd-mir0 ══ ufd-cap0 ─▶ XDP program and AF_XDP sockets of the caller
//
// The pair is a veth, since XDP sees a clone there as it sees any packet; one queue for each
// direction is how the direction survives the way. The end that copies enter has no offloads, so
// the kernel does for a copy what the card does for the packet: it cuts what is longer than the MTU
// (TSO, GRO), computes checksums, and puts VLAN tags in. What the caller's XDP program passes on
// ends at the other end, where a program drops everything: the host sees nothing twice.
//
// The program runs first at both hooks. So it sees what arrives before others there drop or
// redirect it, and what the host sends before others there do.
//
// # Lifetime
//
// On Linux 6.6 and newer the programs are held by links (tcx), which end with the process. Before
// that they are filters of a clsact qdisc, which stay, as the veth pair does everywhere, when a process is
// killed. Both have a number in their names, and whoever owns a number has a socket of that name in the same network
// namespace, which ends with its process. sweep removes what nobody owns; [Open] calls it.
//
// # Threads
//
// Open and Sweep look things up in the network namespace of the calling thread. Methods may be called
// from any goroutine.
//
// It takes CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF, and Linux 6.1.
package mirror
