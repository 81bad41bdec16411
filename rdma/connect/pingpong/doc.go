// Package pingpong speaks the TCP exchange of ibv_rc_pingpong, ibv_uc_pingpong and
// ibv_ud_pingpong (rdma-core, libibverbs/examples), in both roles.
//
// The client writes its LID, queue pair number, packet sequence number and GID as 52 bytes of
// text; the server brings its queue pair to RTS and writes its own; the client answers "done" and both close.
// MTU, sizes and counts are not exchanged: both programs are started with the same, and
// [Settings] and [Destination.Parameters] have the values that they assume. The protocol is plain TCP
// without authentication: see package connect for our own exchange.
//
// Traffic: SEND only; the client sends first; each side sends again when its last send is complete and
// a message has arrived. Receives of datagrams are rdma.GRHBytes longer.
package pingpong
