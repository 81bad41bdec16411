// Package pingpong speaks the TCP exchange of ibv_rc_pingpong, ibv_uc_pingpong and
// ibv_ud_pingpong (rdma-core, libibverbs/examples), in both roles.
//
// The client writes its LID, queue pair number, packet sequence number and GID as 52 bytes of
// text; the server leads its queue pair to RTS and writes its own; the client answers "done" and both close.
// Nothing is said of MTU, sizes or counts: both programs are started with the same, and
// [Settings] and [Destination.Parameters] have what they take for granted. It is plain TCP to
// anybody: see package connect for our own exchange.
//
// Traffic, for those who speak it: SEND only; the client sends first; each side sends again when its
// last send is complete and a message has come. Receives of datagrams are rdma.GRHBytes longer.
package pingpong
