// Unified-nvme-test tests and measures block I/O from the region on a file, a block device or the
// NVMe node of a disk.
//
//	unified-nvme-test TARGET            a self-test: PASS or FAIL for each step
//	unified-nvme-test -rw randread -bs 4k -iodepth 64 -runtime 5 TARGET
//
// TARGET is a block device, the NVMe node of a disk (/dev/ngXnY), a file, a file to be made, or a
// directory, in which a file is made and removed again. A node gets commands that bypass the
// kernel's block layer. Options have the names of fio(1) where it has them. Existing contents are
// not overwritten without -force.
//
// With -rw it prints the granted features, operations per second, bandwidth, latency, and the
// processor time and system calls of an operation. With -verify each block contains its place and
// the time of its writing, and is read back and compared byte by byte.
//
// The exit status is 0 for success, 1 for a failure, and 2 for a mistake in the options.
package main
