// Package multicast makes the host a member of multicast groups while a process needs their packets.
//
// A [Set] has one socket for each membership. The kernel reports the membership by IGMPv3 or MLDv2 (or an older
// version, if the querier speaks that), answers queries, and leaves the group when the socket is closed, also if the
// process is killed. The sockets are not bound, so the kernel puts no packet into them. A socket each keeps clear of
// the kernel's limits for one socket (net.ipv4.igmp_max_memberships, net.ipv4.igmp_max_msf).
//
// [Listen] finds out whether somebody on the link asks for members. Without such a querier, a switch with snooping
// forgets members after some minutes.
package multicast
