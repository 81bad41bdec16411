// Package roce makes an RDMA device of any network interface: RoCE v2 in user space, on AF_XDP sockets. It speaks with
// RDMA cards and with the kernel's Soft-RoCE.
//
// A [Provider] is made with the region that its devices use ([NewProvider]), and opens interfaces
// by name. The [Device] takes the packets to UDP port 4791 that reach the interface; everything else, ARP and neighbour discovery too, stays
// with the kernel, which is asked for the way to a peer. What is said of verbs in package rdma is so here.
//
//	program:   PostSend, Poll                      a queue pair's rings (package transport)
//	               │
//	drive:     [Device] lock ── datapath ── engine  the protocol, without I/O (package transport)
//	               │              │
//	progress loop:    deadlines          └─ receive, send  packets (package wire) and sockets (package xdp)
//
// Who drives. There is no thread that moves packets: posting and polling do it, on the thread of the program, under
// a lock that nobody waits for. Who finds it taken leaves its work to whoever has it. While no program polls, a goroutine, the
// progress loop, watches the sockets and keeps deadlines, so that programs may sleep (CompletionQueue.Arm) or do other things. A message
// that is posted in answer to one that came goes out in front of its acknowledgement, and of all accounts of either. A peer that sends on without waiting for
// acknowledgements gets one for as many messages as it was seen to go on without, up to sixteen, and what is left when nothing has come for some tens of
// microseconds, or milliseconds where no program polls, or others go on.
//
// Copies. A packet is sent from where its payload lies in the region, its headers and trailer beside it, where the
// sockets take packets in parts ([Device.Granted], MultiBuffer); short ones, those sent inline and those sent again are copied, and
// counted ([Device.Counters], sent_copied_bytes). What comes is placed by one copy, or handed on where it arrived
// (rdma.QueuePairConfig.Loans, rdma.Lender).
//
// Frames. The device takes frames of the region's pool when it is opened: those that packets arrive in, and others for packets
// to be sent, so that acknowledgements go out whatever is on loan. They are in a book of the device's, and all are in the
// pool again when it is closed.
//
// Threads. As package rdma says. Modify, NewAddressHandle and all that makes or closes something may wait for a moment, the first two for the
// network.
//
// The oldest kernel is 6.1; packets in parts, and a path MTU that is longer than a frame, need 6.6. It needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF.
package roce
