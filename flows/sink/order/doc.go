// Package order is a sink that sends orders to an exchange, over a TCP connection that the kernel keeps: those of an
// attached program, or those that rules make of packets or messages (package rule).
//
// An order of a program is copied once, into a frame of the flow: the program can still change its own memory, and what the limits
// have checked must be what leaves. Its segment leaves by AF_XDP, see package tcpsend. When that is not possible the
// order goes the kernel's way, or waits, and either is counted with its reason. An order of a rule is made in the frame from
// which it leaves, under the same limits. It never waits: the feed would wait behind it, and the price would have passed.
//
// A goroutine, the keeper, connects, or takes a connection that a program gives, follows changes of the route, and connects again. It passes the connection to the
// worker's thread, which passes it back when it has ended. An end of the connection closes the program's ports. They
// open again with the next connection, so the program begins with a new session of the exchange.
package order
