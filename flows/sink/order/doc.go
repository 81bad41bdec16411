// Package order is a sink that sends orders of an attached program to an exchange, over a TCP connection that the
// kernel keeps.
//
// An order is copied once, into a frame of the flow: the program can still change its own memory, and what the limits
// have checked must be what leaves. Its segment leaves by AF_XDP, see package tcpsend. When that is not possible the
// order goes the kernel's way, or waits, and either is counted with its reason.
//
// A goroutine, the keeper, connects, follows changes of the route, and connects again. It passes the connection to the
// worker's thread, which passes it back when it has ended. An end of the connection closes the program's ports. They
// open again with the next connection, so the program begins with a new session of the exchange.
package order
