// Package layout turns received packets into batches of pcapng records for a disk or a stream.
//
// A Layout has one open batch. [Packed] copies packets back to back into extents. [InPlace] makes a
// record around each packet where it landed, and copies nothing that fits one frame. The worker
// seals the batch, sends the frames that Seal returns, and gives them back by Free when the disk is
// done.
//
// A Layout belongs to one goroutine. Any goroutine may read its counters.
package layout

import (
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/umem"
)

// Bounds of the writes of one flow.
const (
	// MaxWriteFrames is the largest number of frames of one write in place. 256 packets of 1 KiB are
	// 256 KiB; larger writes cost no less per byte.
	MaxWriteFrames = 256
	// MaxWrites is the number of writes that the disk has at once.
	MaxWrites = 32
)

// Layout turns received frames into batches of pcapng records. One batch is
// open at a time.
type Layout interface {
	// Add puts whole packets of one source into the open batch and returns how many frames of fs it
	// used. It uses fewer than all if the batch is full, memory is short, or the last packet is not
	// complete. Used frames belong to the layout, or are already in the free list.
	Add(source uint32, fs []umem.Frame) int
	// Note puts encoded blocks into the open batch, which must be empty. It reports whether it could.
	Note(blocks []byte) bool
	// Size returns the length of the open batch on disk if it were sealed now; 0 if it is empty.
	Size() uint64
	// Count returns the packets and packet bytes of the open batch.
	Count() (packets uint32, bytes uint64)
	// Newest returns the time of the latest packet of the open batch by the
	// system's clock, in nanoseconds since 1970; 0 without packets.
	Newest() uint64
	// ExtentFrames returns how many frames of the region are in extents that are not free.
	ExtentFrames() int
	// Seal completes the open batch for the place that b names and returns the
	// frames to send. It may be called again, for another place, until Reset.
	Seal(b pcapng.Batch) []umem.Frame
	// Reset opens the next batch. The sealed frames belong to the disk.
	Reset()
	// Free takes back frames when the disk is done with them.
	Free(fs []umem.Frame)
}

// Config is the common configuration of both layouts.
type Config struct {
	Region  *umem.Region
	Free    *umem.FreeList // list of unused frames; also the source of frames for headers and copies
	Limit   uint64         // bytes of a batch
	Copies  *Copies
	SnapLen *SnapLen
	Numbers Numbering
	Records *Records // headers of messages whose payloads alone are in frames; nil: messages have their own
}

// Copies counts the packet bytes that a layout copied, by reason.
type Copies struct {
	Packed     counter.Counter // packed layout: every packet, once
	MultiFrame counter.Counter // in place: packets of several frames
	Unaligned  counter.Counter // in place: one frame, but at an offset where no record can begin
}

// putHeader writes the header of a packet's block, which has kept of length bytes. If the card's
// clock is in use, each source has one interface for each clock.
func putHeader(dst []byte, source uint32, side *umem.Side, kept, length, block uint32) {
	pcapng.PutPacketHeader(dst, source+uint32(side.Clock), side.Stamp, kept, length, block)
}

// systemTime returns when a packet arrived by the system's clock; 0 if it has a time of the card's
// clock only.
func systemTime(side *umem.Side) uint64 {
	if side.Clock != umem.SystemClock {
		return 0
	}
	return side.Stamp
}
