// Unified-nvme-test shows whether, and how fast, block I/O from the region works on
// a file, a block device or the NVMe node of a disk.
//
//	unified-nvme-test TARGET            a self-test: PASS or FAIL for each step
//	unified-nvme-test -rw randread -bs 4k -iodepth 64 -runtime 5 TARGET
//
// TARGET is a block device, the NVMe node of a disk (/dev/ngXnY), a file, a file to be
// made, or a directory, in which a file is made and removed again. What a node is for,
// commands to the disk past the kernel's block layer, follows from TARGET alone. The
// options are named as in fio(1), where it has them. What is on the target is not
// written over unless -force is given.
//
// With -hipri completions are polled for, with -sqthread_poll a thread of the kernel
// submits.
//
// With -rw it prints what the kernel granted, operations per second, bandwidth,
// latency, and what an operation cost in processor time and system calls. With
// -verify each block says where it belongs and when it was written, and is read back
// and compared byte by byte.
//
// The exit status is 0 when everything went well, 1 when not, 2 for a mistake
// in the options.
package main
