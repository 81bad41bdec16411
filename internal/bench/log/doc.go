// Package log compares a flow from RDMA to storage, the log of unifiedd, with a log behind a TCP
// server in C, selftests/peers/log-peer.
//
// Both receive records of many clients, check them, give each a position, write them with direct
// I/O to a file on the same disk, and flush as often as the disk allows (group commit). Both
// acknowledge a record when it is received, or when it is durable. The clients of each side are one
// process with one thread, with the same number of records in flight for each client:
// unified-flow-test load, and log-client. They are in their own network namespace on a veth pair.
// RoCE in software uses one pair. TCP uses another one with the kernel's offloads. Server and
// client have a CPU each.
//
// At durable, ours is also compared with the disk alone: a write of a record of each client and a
// flush, one pair after the other.
//
// At received, ours is also compared with its packets alone: selftests/peers/xsk-peer/xsk-records
// exchanges such packets over AF_XDP sockets on the same CPUs, without reading their contents,
// without a disk, and without RoCE's acknowledgements. If that misses the bar, any log over such
// packets misses it.
//
// The comparison has the time from sending a record to its acknowledgement, and the whole machine's
// processor time for a record: the time that processors were not idle, including the kernel's work
// for network and disk. Both ends of ours spin and theirs sleep. So on a machine with other load
// this also compares how the scheduler treats the two.
package log
