// Package blocks compares reading a disk over RDMA with fio, which reads it locally.
//
// A daemon serves a file to unified-flow-test in another network namespace, over RoCE in software
// on a veth pair. fio reads the same file with io_uring, direct I/O, registered buffers and
// registered files. Both read blocks of one size at random offsets with the same depth, one after
// the other. The comparison has the bytes per second and the latency: median and tail.
//
// The daemon's worker and the client spin on a CPU each. The daemon runs only during its
// measurement. On a veth pair the sender's CPU, here the daemon's, delivers packets to the
// receiver's socket; in one case the client's CPU receives them. fio runs on the client's CPU.
// docs/background/benchmarks.md has the results. Reads from the daemon's cache are compared with fio's reads of the disk.
package blocks
