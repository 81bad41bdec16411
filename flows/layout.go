package flows

import (
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/umem"
)

// layout turns received frames into batches of pcapng records for the disk. One
// batch is open at a time. A layout belongs to its flow's worker.
type layout interface {
	// add puts whole packets of one source into the open batch and returns how
	// many frames of fs it used: fewer than all when the batch is full, memory is
	// short, or the last packet's end has not come yet. Used frames are the
	// layout's, or already back in the free list.
	add(source uint32, fs []umem.Frame) int
	// note puts encoded blocks into the open batch, which must be empty. It
	// reports whether it could.
	note(blocks []byte) bool
	// size is the length of the open batch on disk if it were sealed now, zero
	// when it is empty.
	size() uint64
	// count is the packets and packet bytes of the open batch.
	count() (packets uint32, bytes uint64)
	// newest is the time of the latest packet of the open batch by the system's clock,
	// in nanoseconds since the epoch; 0 without packets.
	newest() uint64
	// away is how many frames batches have that never were a source's: those of
	// extents.
	away() int
	// seal completes the open batch for the place b names and returns the message
	// to send. Until reset it may be sealed again, for another place.
	seal(b pcapng.Batch) []umem.Frame
	// reset opens the next batch; the sealed frames belong to the disk.
	reset()
	// free takes frames back that the disk is done with.
	free(fs []umem.Frame)
}

// copies counts the packet bytes a layout copied, by reason. The worker is the
// only writer.
type copies struct {
	packed     counter.Counter // packed layout: every packet, once
	multiFrame counter.Counter // slot layout: packets of several frames
	tight      counter.Counter // slot layout: one frame, but not where a record can be
}
