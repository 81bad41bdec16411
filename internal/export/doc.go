// Package export makes plain pcapng files of captures: of the ring of segments on a device, and of segment files.
//
// It trusts nothing it reads and writes to nothing it reads. What is read may be written meanwhile: each batch is judged
// in memory, and what is not whole, or is overwritten, is skipped and counted. The result has one section, every
// interface once, and the packets in the order in which they were captured, those of several queues or interfaces in
// that of their times, without marks, padding and statistics.
package export
