// Package network knows what the kernel knows about a network interface: its addresses, its link, and over
// which MAC address a peer is reached. A stack that sends its own packets asks it what to write into Ethernet's
// header, and leaves ARP, neighbour discovery, routes and addresses to the kernel.
//
// An [Interface] is one Ethernet interface with the VLANs on it. Its addresses stand in a table of
// GIDs, as an RDMA card's do ([Interface.GIDs]): an address keeps its place, one that goes leaves a hole, and one that comes takes
// the first. The address of a VLAN has the VLAN's tags with it.
//
// [Interface.Resolve] finds the [Way] to a peer: the kernel's routes name the next hop, which is the peer or a
// gateway, and its table of neighbours has the MAC. A neighbour that is not in the table is asked for by the
// kernel, at our request; nothing here sends a packet. Groups have the MAC that follows from their address.
//
// Everything may change at any time. One goroutine per Interface listens to the kernel, and what changed is
// handed out by [Interface.Next]: link, MTU, MAC, addresses. A way in use is kept ([Interface.Keep]): the kernel does not see
// packets that go past it and would forget the neighbour; so the neighbour is looked at now and then and checked as if
// the kernel had sent the packets itself, and who keeps the way is told when it leads elsewhere or nowhere. Changes
// are not queued but compared: what went and came back between two calls of Next is not told, and no number of changes makes
// more than one of a kind. When the kernel has more to say than its buffer holds, everything is
// read again ([Counters]).
//
// Namespace. Open looks the interface up in the network namespace of the calling thread and makes its sockets there; later
// calls work from any thread.
//
// Threads. All methods may be called by several goroutines at once, Next by one at a time.
//
// Privilege. Reading needs none. Having the kernel ask for a neighbour needs CAP_NET_ADMIN in the namespace;
// without it only neighbours the kernel knows already are found ([ErrPermission]).
//
// Lifetime. Close ends the goroutine and waiting calls, and gives the sockets back. An interface that is deleted or moved away
// is gone for good ([ErrInterfaceGone]), also when another of its name comes.
//
// Kernels: tested from 6.1 on. Sources: net/core/rtnetlink.c, net/core/neighbour.c, net/ipv4/route.c, net/ipv6/route.c and
// drivers/infiniband/core/roce_gid_mgmt.c of Linux; RFC 1112, RFC 2464.
package network
