// Package roce makes an RDMA device of a network interface: RoCE v2 in user space, on
// AF_XDP sockets. It speaks with RDMA cards and with the kernel's Soft-RoCE.
//
// A [Provider] is made with the region that its devices use, and opens interfaces by
// name. The [Device] receives the packets to UDP port 4791. Everything else stays with
// the kernel, which also resolves routes and neighbours.
//
//	program:        PostSend, Poll               a queue pair's rings (package transport)
//	                    │
//	progress:       Device lock ── datapath ── engine   the protocol (package transport)
//	                    │              │
//	progress loop:  deadlines          └─ rx, tx        packets (wire) and sockets (xdp)
//
// Progress. No thread moves packets by itself: posting and polling do it on the
// program's thread, under a lock that they never wait for. A thread that finds it taken
// leaves its work to the holder. While no program polls, the progress loop watches
// sockets and deadlines, so that programs may sleep (CompletionQueue.Arm).
//
// Acknowledgements. An answer is sent before the ACK of its request, and before any
// bookkeeping. A peer that does not wait for ACKs gets one ACK for several messages,
// up to 16. Deferred ACKs are sent when nothing has arrived for some tens of microseconds,
// or for milliseconds while no program polls.
//
// Copies. A packet is sent from where its payload lies, with headers beside it, if the
// sockets take packets in parts ([Device.Granted], MultiBuffer). Short, inline and
// repeated packets are copied and counted (sent_copied_bytes). Received payloads are
// copied into place once, or loaned where they arrived (rdma.Lender).
//
// Frames. The device takes its frames from the region's pool when it opens, for
// receiving and for sending, and returns all of them when it closes.
//
// It needs Linux 6.1; packets in parts need 6.6. It needs CAP_NET_RAW, CAP_NET_ADMIN
// and CAP_BPF. Threads are as in package rdma.
package roce
