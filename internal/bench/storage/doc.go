// Package storage compares unified-nvme-test with fio.
//
// Both read and write blocks of 4 KiB at random places of the same file on a disk and of the same
// device in memory (zram), which hold the same bytes, with io_uring, registered buffers and files,
// direct I/O, one operation and 64 at a time, on the same CPU, one after the other. The comparison
// has the operations per second and the processor time per operation.
//
// Processor time is what the kernel charged the whole process when it ended, its kernel threads
// included, less the cost of a run with a single operation. Otherwise fio's start, which takes a
// fifth of a second, would count in our favour.
//
// The disk rests before each run. It accepts writes faster than it can complete them, so fio, which
// needs longer to start, would find it less busy than our program does.
//
// fio's buffers stay as they are from write to write (scramble_buffers=0), as ours do. Both measure
// the latency of each operation, which is fio's default.
package storage
