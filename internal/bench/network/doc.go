// Package network compares unified-xdp-test with a program in C on libxdp,
// selftests/peers/xsk-peer.
//
// Both receive the packets of one queue in copy mode and return their frames, with rings, frames,
// batches and memory of the same sizes, and sleep in poll with the same time-out. Both run on CPU
// 0, one after the other, and get the same packets at the same rate from a sender on CPU 1, over a
// veth pair. The comparison has the processor time of all threads of the receiving process per
// packet.
//
// At such a rate nearly every packet wakes the receiver, which is most of the cost. So both, and
// the sender, have real-time priority, and so sleep and wake alike under any other load.
//
// Processor time is the first number of schedstat of each thread, which the scheduler keeps to the
// nanosecond: the value after the traffic less the value before. It excludes the cost of starting.
// The XDP programs run in the sender's time, and ours does more. So the report also has the time of
// the whole machine.
package network
