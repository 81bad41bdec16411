// Package attached is the library of programs that attach to a unifiedd daemon on the same host.
//
// A [Client] meets the daemon at its socket. A [Receiver] gets packets or messages of a flow in memory that the daemon,
// or a device, has written; the program reads them there and releases them. A [Sender] fills frames of memory that the
// daemon reads, and learns for each message the position that the flow gave it. No call copies a payload, and in the
// steady state none allocates or makes a system call, except Wait.
//
// When the daemon ends, the memory stays mapped, so nothing that the program holds faults. Wait attaches again once
// the daemon is back. A Sender then offers again what was not done: by session and sequence, the flow takes each
// message once.
//
// A [BlockReader] reads blocks of a file or device into such memory. A [ChannelWriter] and a [ChannelReader] pass
// messages between programs without the daemon. A [Given] is a TCP connection of the program, on which the daemon sends.
//
// A Receiver, Sender, BlockReader, ChannelWriter or ChannelReader belongs to one goroutine at a time. A Client and a Given
// may be used by all.
package attached
