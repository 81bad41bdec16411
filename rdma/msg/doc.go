// Package msg moves frames between a region and RDMA peers by SEND and receive.
//
// A [Port] is a umem.Port on one or more queue pairs of RC, UC or UD. Of a message
// that is sent, the frame stays with the port until the completion; what is received
// lands in frames that Supply has posted. No byte is copied.
//
// Threads: the port belongs to its worker's thread. [Open] may be called from any.
package msg
