// Package storage compares unified-nvme-test with fio.
//
// Both read and write blocks of 4 KiB at random places of the same file on a disk and of
// the same device in memory (zram), which hold the same bytes, with io_uring, registered
// buffers and files, direct I/O, one operation and 64 at a time, on the same CPU, in turn.
// Compared are operations per second and processor time per operation.
//
// Processor time is what the kernel charged the whole process when it ended, its
// kernel threads included, less what a run of a single operation costs: fio spends a
// fifth of a second on starting, which would flatter us.
//
// The disk rests before each run: it takes writes faster than it can keep up with, and
// fio, which needs longer to start, would find it more rested than we do.
//
// fio's buffers stay as they are from write to write (scramble_buffers=0), as ours do.
// Both measure the latency of each operation, which is fio's default.
package storage
