// Package transport carries the messages of a group between its members, over TCP or TLS. Records
// do not use it.
//
// Each member dials all others, and sends its messages over the connections that it dialed. A
// message is lost if there is no connection, or if the connection's queue is full: the group repeats
// what it needs. Every other member is known by its number. With TLS its certificate must have the
// name that the configuration gives for that number.
//
// A connection begins with a hello of each side. Then follow frames in one direction:
//
//	offset  bytes
//	     0      4  length of what follows the checksum, at most 128 KiB
//	     4      4  CRC-32C of it
//	     8      1  kind
//	     9         the rest, by kind
//
// All numbers are big-endian. Bytes from a peer are checked before they are used. A peer that sends
// something else is disconnected, with the reason in the log and in the counters.
package transport
