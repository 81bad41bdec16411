// Package capture compares what unifiedd needs to write packets to a disk with what stenotype,
// netsniff-ng, dumpcap and tcpdump need.
//
// A sender that sleeps between packets (unified-xdp-test) sends numbered packets at a fixed rate
// over a veth pair, from CPU 1; the receiver has CPU 0. In each round every receiver gets the same
// packets once, one after the other.
//
// The cost of a receiver is measured on the whole machine, since over veth the kernel does much of
// its work in the sender's time. It is the time that processors were not idle, less that of the
// same traffic into an XDP program that drops it. It covers everything from the first packet until
// the receiver has ended and its files are on stable storage. selftests/peers/soaker counts idle
// time; wake-ups and interrupts do not count as idle.
//
// A packet is lost if its number is not in the files, which are read from the disk (seen).
//
// Nothing here is safe for concurrent use.
package capture
