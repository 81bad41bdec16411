// Package export writes plain pcapng files from captures: from the ring of segments on a device,
// and from segment files.
//
// It does not trust its input, and never writes to it. A capture may still be written while it is
// read: each batch is checked in memory, and a batch that is incomplete or is overwritten is
// skipped and counted. The result has one section, each interface once, and the packets in the
// order of capture. Packets of several queues or interfaces are in the order of their times. It has
// no marks, padding or statistics.
package export
