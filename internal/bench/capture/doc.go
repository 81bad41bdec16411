// Package capture compares what unifiedd takes to put packets on a disk with what stenotype, netsniff-ng,
// dumpcap and tcpdump take.
//
// A sender that sleeps between packets (unified-xdp-test) sends numbered packets at a set rate over a veth pair,
// from CPU 1; the receiver has CPU 0. In each round every receiver gets the same packets once, in turn.
//
// What a receiver costs is asked of the whole machine, since over veth the kernel does much of its work in
// the sender's time: the time no processor was idle, less that of the same traffic into an XDP program
// that drops all of it. It covers all from the first packet until the receiver has ended and its files are
// on stable storage. Idle time is counted by selftests/peers/soaker, to which waking up and interrupts are no idle time.
//
// In the lab guest (make lab-bench RUN=Stenotype) both cards and processors are emulated; there the receiver has an igb card with zero copy, and the kernel
// itself tells how long it was idle.
//
// What was lost is what is not found again by its number in the files, read from the disk (seen).
//
// Nothing here is safe for concurrent use.
package capture
