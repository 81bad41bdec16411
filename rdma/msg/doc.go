// Package msg moves frames between a region and RDMA peers by SEND and receive.
//
// A [Port] is a umem.Port on one or more queue pairs of RC, UC or UD. The port owns the frames of a
// sent message until the completion. Messages arrive in frames that Supply has posted. The port
// copies no byte, except messages that fit inline.
//
// Threads: the port belongs to its worker's thread. Any thread may call [Open].
package msg
