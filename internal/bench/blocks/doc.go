// Package blocks compares reading a disk over RDMA with fio, which reads it here.
//
// A daemon serves a file to unified-flow-test in another network namespace, over RoCE in software on a veth pair. fio reads the same
// file with io_uring, direct I/O, registered buffers and files. Both read blocks of a size at random places, as many at a time, in turn. Compared are
// the bytes they get and how long a request takes, at its median and far out.
//
// The daemon's worker and the client spin. Each has a CPU, and the daemon runs only while it is asked. On a veth pair the sender's CPU, the daemon's here, takes
// packets as far as the receiver's socket; one case has the client's CPU receive them. fio runs on the client's CPU. A machine whose other
// processor spins may read its disk slower than one that rests: so fio is also measured beside a thread that spins where the daemon's
// worker does, and docs/benchmarks/blocks.md has what came of it. What comes from the daemon's cache is compared with fio's reads of the disk.
package blocks
