// Package log compares a flow from RDMA to storage, the log of unifiedd, with a log behind a TCP server in C, selftests/peers/log-peer.
//
// Both take records from many clients at once, check them, give each a position, write them with direct I/O to a file on the same disk, and
// flush as often as the disk lets them (group commit). Both acknowledge a record when it is received, or when it is durable. The clients of
// each side are one process with one thread for all of them, which has the same number of records under way for each client: unified-flow-test
// load, and log-client. They are in a network namespace of their own, on a veth pair; RoCE is ours in software on one, TCP has another
// one with the kernel's offloads on. Server and client have a CPU each.
//
// At durable ours is also put beside what the disk does by itself: a write of a record of each client and a flush, one pair after the other.
//
// At received it is also put beside its packets by themselves: selftests/peers/xsk-peer/xsk-records exchanges such packets over AF_XDP sockets, on the
// same CPUs, without looking at what they carry, without a disk, and without RoCE's acknowledgements. Where that takes more than the bar allows, no
// log over such packets meets it.
//
// Compared are the time from sending a record to its acknowledgement, and what the whole machine spends on a record: all time of all
// processors in which they were not idle, the kernel's work for the network and for the disk included. Both ends of ours spin and theirs sleep, so that on a
// machine with other work this compares how the scheduler treats the two.
package log
