// Package network compares unified-xdp-test with a program in C on libxdp,
// selftests/peers/xsk-peer.
//
// Both receive the packets of one queue in copy mode and hand their frames back,
// with rings, frames, batches and memory of the same sizes, and sleep in poll with the
// same time-out when there is nothing. Both run on CPU 0, in turn, and get the
// same packets at the same rate from a sender on CPU 1, over a veth pair. Compared is
// the processor time of the receiving process per packet, all its threads
// together.
//
// Nearly every packet wakes the receiver at such a rate, and that is where the time goes:
// so both have real-time priority, and the sender too, and sleep and wake alike
// whatever else the machine does.
//
// Processor time is the first number of schedstat of each thread, which the
// scheduler keeps to the nanosecond, after the traffic less before it: what
// starting costs is not in it. The XDP programs, of which ours does more, run in the
// sender's time, so the time of the whole machine is told beside it.
package network
