// Unified-xdp-test tests and measures AF_XDP from the region on a network interface.
//
//	unified-xdp-test IFACE                a self-test: PASS or FAIL for each step
//	unified-xdp-test -rx -duration 5s IFACE
//	unified-xdp-test -tx -rate 100000 -size 1024 -to 02:00:00:00:00:02 IFACE
//
// and between two machines, or the two ends of a veth pair,
//
//	unified-xdp-test -echo IFACE
//	unified-xdp-test -ping -count 10000 -to 02:00:00:00:00:02 IFACE
//
// -rx receives packets and supplies their frames again. -tx sends UDP packets to the addresses
// that RFC 2544 reserves for measurements. -echo sends each packet back from the frame it arrived
// in. -ping measures the round trip. Each prints the granted features, the rate, the outcome of
// every packet, and the processor time and wake-ups of a packet.
//
// The self-test also says whether a querier asks for members of multicast groups, which a switch with snooping needs.
//
// The host does not receive packets that AF_XDP takes. The self-test and -ping take only their own
// packets. -rx and -echo take packets that -filter accepts. Without a filter they refuse an interface with
// the default route, unless -take-over is given.
//
// A worker is one thread with its own queues. There are as many as queues, but no more than
// processors.
//
// The exit status is 0 for success, 1 for a failure, also if -count was not reached, and 2 for a
// mistake in the options.
package main
