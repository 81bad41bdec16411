// Unified-tick-test measures tick to trade from outside: the time from a tick, which is a UDP packet of market data,
// to the order that answers it on an established TCP connection.
//
//	unified-tick-test exchange -to 10.0.0.2:5000 -listen :7000     sends ticks, receives orders, prints the times
//	unified-tick-test trader -from :5000 -to 10.0.0.1:7000         answers each tick, with sockets of the kernel
//
// With -flow and -send the trader is a program that is attached to a daemon: flows give it ticks, and send its orders.
//
// The trader is what other traders are compared with. selftests/peers/tick-peer has one in C. A trader answers each tick
// once, in order, with an order that repeats the tick. The exchange compares each byte that it receives, and fails if
// an order differs, comes twice or for a tick that it did not send, or is missing.
//
// A tick has 32 bytes: 'T', the side, 2 bytes of 0, price (4), sequence (8), shares (4), symbol (8), and 4 bytes of 0.
// Numbers are big-endian. With -mold it is a message of MoldUDP64. The plain order has the same bytes, but 'O' in place of 'T'.
// With -protocol ouch it is an Enter message of OUCH 4.2 in SoupBinTCP, after a login, and the exchange answers each
// with Accepted.
//
// The exchange reads two clocks. The kernel stamps each tick when it gives the packet to the driver, and each order when
// it gets the packet from the driver (SO_TIMESTAMPING, in software). So the times of the kernel do not have the
// exchange's own calls and waits in them. The program's own clock, before the call that sends and after the one that
// receives, has. Both are printed. If orders wait behind each other in the connection, the kernel may stamp the earlier
// one as late as the later one.
//
// The exit status is 0 for success, 1 for a failure, and 2 for a mistake in the options.
package main
