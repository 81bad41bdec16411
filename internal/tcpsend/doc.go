// Package tcpsend sends on a TCP connection that the kernel owns, by segments of its own.
//
// A [Conn] is an ordinary socket of the kernel in repair mode (TCP_REPAIR). In that mode send(2) puts a payload into
// the queue of what was sent, and transmits nothing. The caller transmits the same bytes in a segment that
// [Conn.Build] makes, over an AF_XDP socket. The kernel processes the acknowledgement, and retransmits the segment if
// it is lost. It also closes the connection.
//
// # One payload
//
// [Conn.Guard] says whether a payload may go this way. If so, [Conn.Build] writes the headers in front of it, the caller
// transmits it, and [Conn.Book] gives it to the kernel. An acknowledgement that comes between is lowered by a BPF
// program at the interface's tc ingress, so that TCP does not drop it with the data that it brings. If Guard has an
// objection, [Conn.Plain] leaves repair mode and sends the payload as any program does, or the caller waits.
//
// The bytes of a payload must not change between Build and Book. Whatever becomes of the segment, the peer gets the
// booked bytes: the kernel believes that it has sent them, and sends them again.
//
// # State for the headers
//
// Sequence, acknowledgement and window come from the socket itself (TCP_QUEUE_SEQ, TCP_REPAIR_WINDOW, TCP_INFO). A
// segment acknowledges what the kernel acknowledged last, and never more. The peer's last timestamp comes from the BPF
// program, as the socket does not give it.
//
// # Threads
//
// One thread at a time uses a Conn. Only [Conn.SetPath] may be called by another goroutine. The socket's options need
// CAP_NET_ADMIN, the program CAP_BPF.
//
// Segments need Linux 6.6 (tcx). Sources: tcp_sendmsg_locked, do_tcp_setsockopt and do_tcp_getsockopt in net/ipv4/tcp.c,
// tcp_write_xmit in net/ipv4/tcp_output.c; RFC 9293, RFC 7323.
package tcpsend
