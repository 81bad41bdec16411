// Package mirror copies the traffic of an interface to a virtual one. A capture of the virtual
// interface does not take the traffic from the host.
//
//	eth0 ──┬── arrives ─▶ host          a program of a few instructions at tc's two hooks
//	       └── leaves  ◀─ host          clones each packet
//	             │
//	             ▼  queue 0: arrived, queue 1: leaves
//	        ufd-mir0 ══ ufd-cap0 ─▶ XDP program and AF_XDP sockets of the caller
//
// The pair is a veth pair, since XDP on a veth treats a clone like any packet. Each direction has
// its own queue, which preserves the direction. The end at which copies enter has no offloads. So
// the kernel does for a copy what the card does for the packet: it segments to the MTU (TSO, GRO),
// computes checksums and inserts VLAN tags. Packets that the caller's XDP program passes on reach
// the other end, where a program drops them. So the host receives no packet twice.
//
// The program runs first at both hooks. It sees arriving packets before other programs drop or
// redirect them. The same holds for packets that the host sends.
//
// # Lifetime
//
// On Linux 6.6 and newer, links (tcx) hold the programs and end with the process. On older kernels
// they are filters of a clsact qdisc, which stay when a process is killed. The veth pair always
// stays. Both have a number in their names. The owner of a number has a socket of that name in the
// same network namespace, which ends with its process. [Open] first removes filters and pairs
// without an owner.
//
// # Threads
//
// Open and sweep use the network namespace of the calling thread. Any goroutine may call the
// methods.
//
// It needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF, and Linux 6.1.
package mirror
