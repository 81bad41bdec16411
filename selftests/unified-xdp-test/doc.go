// Unified-xdp-test shows whether, and how fast, AF_XDP works from the region on a
// network interface.
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
// With -rx packets are received and their frames supplied again; with -tx UDP packets
// are sent to addresses that RFC 2544 sets aside for measurements; -echo sends what
// arrives back from the frame it arrived in; -ping measures the way there and
// back. Each prints what the kernel granted, the rate, what became of every packet, and
// what a packet cost in processor time and wake-ups.
//
// What AF_XDP takes, the host no longer sees. The self-test and -ping take only
// packets of their own; -rx and -echo everything that -filter wants, and
// without one they refuse an interface that carries the default route, unless
// -take-over is given.
//
// A worker is one thread with the queues that are its own; there are as many as
// there are queues, but no more than processors.
//
// The exit status is 0 when everything went well, 1 when not, also when -count was
// not reached, 2 for a mistake in the options.
package main
