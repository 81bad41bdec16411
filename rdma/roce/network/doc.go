// Package network tracks the kernel's state of a network interface: addresses, link, and the
// MAC address through which a peer is reached. A stack that sends its own packets
// asks it for Ethernet headers, and leaves ARP, neighbour discovery and routing to the
// kernel.
//
// An [Interface] is an Ethernet interface with its VLANs. Its addresses are in a table of
// GIDs, as on an RDMA card ([Interface.GIDs]): an address keeps its index while it exists.
//
// [Interface.Resolve] finds the [Route] to a peer: the kernel's routing table has the next
// hop, and its neighbour table the MAC. The kernel asks for an unknown neighbour at our
// request. Multicast MACs follow from the address.
//
// One goroutine per Interface listens to the kernel. [Interface.Next] returns what changed:
// link, MTU, MAC, addresses, tracked routes. It compares states and queues no changes, so
// that its memory does not grow with their number. A route in use is tracked ([Interface.Track]): the kernel
// does not see our packets and would forget the neighbour, so the Interface makes the kernel
// probe it as if the kernel had sent them. If the kernel's messages overflow, everything is read again
// ([Counters]).
//
// Open uses the network namespace of the calling thread. Later calls work from any thread,
// and several goroutines may call them, Next one at a time. Probing a neighbour needs
// CAP_NET_ADMIN. Close ends waiting calls. An interface that is deleted or
// moved stays gone ([ErrInterfaceGone]).
//
// Linux 6.1 or later. Sources: net/core/rtnetlink.c, net/core/neighbour.c, net/ipv4/route.c,
// net/ipv6/route.c, drivers/infiniband/core/roce_gid_mgmt.c; RFC 1112, RFC 2464.
package network
