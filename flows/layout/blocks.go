package layout

import (
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/umem"
)

// Ring is the ring of a packet socket: memory outside the region, in blocks that the kernel fills
// with packets. The source makes records of the packets of a block where they lie, and describes the
// block in About before it passes its frame to the sink. It belongs to the worker's thread.
type Ring struct {
	Memory  []byte
	Block   uint64 // bytes of a block: a power of two
	Base    uint64 // address of the first block as a frame: the size of the region
	About   []Block
	Release func(number int) // gives a block back to the kernel
}

// Block describes a block with records.
type Block struct {
	Head    uint32 // bytes before the first record, from pcapng.MinMarkLen to MaxRingHead
	Length  uint32 // bytes up to the end of the last record: a multiple of the disk's alignment
	Packets uint32
	Bytes   uint64 // of packets that are kept
	Oldest  uint64 // time of the first packet by the system's clock, in nanoseconds since 1970; 0: unknown
	Newest  uint64 // of the latest
	Cut     uint32 // packets of which the end is left out
	Omitted uint64 // bytes of those ends
}

// Frame returns the frame of a block.
func (r *Ring) Frame(number int) umem.Frame {
	return umem.Frame{Addr: r.Base + uint64(number)*r.Block, Len: uint32(r.Block)}
}

// Number returns the number of the block of a frame.
func (r *Ring) Number(f umem.Frame) int { return int((f.Addr - r.Base) / r.Block) }

// Of returns the bytes of a frame.
func (r *Ring) Of(f umem.Frame) []byte { return r.Memory[f.Addr-r.Base:][:f.Len:f.Len] }

// Bytes returns the memory of a block.
func (r *Ring) Bytes(number int) []byte {
	at := uint64(number) * r.Block
	return r.Memory[at : at+r.Block : at+r.Block]
}

// InRing writes blocks of a packet socket from where they are. Each block is a batch. Only its mark
// is written here, over the kernel's header of the block. Statistics have batches of their own.
type InRing struct {
	ring    *Ring
	notes   *Packed
	snap    *SnapLen
	stream  bool // without marks
	open    int  // number of the block in the open batch; -1: none
	message [1]umem.Frame
	mark    [MaxRingHead]byte
}

// MaxRingHead is the largest Head of a block in bytes.
const MaxRingHead = 256

// NewInRing returns a layout for the blocks of a ring. Statistics are copied into the extents. With an
// align of 1 batches are those of a stream, without a mark.
func NewInRing(c Config, ring *Ring, align uint32, extents []umem.Frame) *InRing {
	return &InRing{ring: ring, notes: NewPacked(c, align, uint32(c.Limit), extents), snap: c.SnapLen, stream: align == 1, open: -1}
}

// Ring returns the ring.
func (l *InRing) Ring() *Ring { return l.ring }

// Add implements [Layout]. It takes one block.
func (l *InRing) Add(_ uint32, fs []umem.Frame) int {
	if len(fs) == 0 || l.Size() > 0 {
		return 0
	}
	l.open = l.ring.Number(fs[0])
	b := &l.ring.About[l.open]
	if b.Cut > 0 {
		l.snap.Truncated.Add(uint64(b.Cut))
		l.snap.Omitted.Add(b.Omitted)
	}
	return 1
}

// Note implements [Layout].
func (l *InRing) Note(blocks []byte) bool { return l.open < 0 && l.notes.Note(blocks) }

// Size implements [Layout].
func (l *InRing) Size() uint64 {
	if l.open >= 0 {
		return uint64(l.ring.About[l.open].Length)
	}
	return l.notes.Size()
}

// Count implements [Layout].
func (l *InRing) Count() (uint32, uint64) {
	if l.open >= 0 {
		return l.ring.About[l.open].Packets, l.ring.About[l.open].Bytes
	}
	return l.notes.Count()
}

// Oldest returns the time of the first packet of the open batch; 0 without packets.
func (l *InRing) Oldest() uint64 {
	if l.open >= 0 {
		return l.ring.About[l.open].Oldest
	}
	return 0
}

// Newest implements [Layout].
func (l *InRing) Newest() uint64 {
	if l.open >= 0 {
		return l.ring.About[l.open].Newest
	}
	return l.notes.Newest()
}

// ExtentFrames implements [Layout].
func (l *InRing) ExtentFrames() int { return l.notes.ExtentFrames() }

// Seal implements [Layout]. The low bit of the enterprise number in the mark lies where the kernel
// has the bit of blocks that user space owns (TP_STATUS_USER), and is set. It must never be cleared
// here, not even for a moment, so the mark is made elsewhere and copied.
func (l *InRing) Seal(b pcapng.Batch) []umem.Frame {
	if l.open < 0 {
		return l.notes.Seal(b)
	}
	about := &l.ring.About[l.open]
	l.message[0] = l.ring.Frame(l.open)
	if l.stream {
		l.message[0].Addr += uint64(about.Head)
		l.message[0].Len = about.Length - about.Head
		return l.message[:]
	}
	b.Length, b.Packets = about.Length, about.Packets
	pcapng.PutBatchHeader(l.mark[:about.Head], &b)
	copy(l.ring.Bytes(l.open), l.mark[:about.Head])
	l.message[0].Len = about.Length
	return l.message[:]
}

// Reset implements [Layout].
func (l *InRing) Reset() {
	if l.open < 0 {
		l.notes.Reset()
	}
	l.open = -1
}

// Free implements [Layout].
func (l *InRing) Free(fs []umem.Frame) {
	for i, f := range fs {
		if f.Addr >= l.ring.Base {
			l.ring.Release(l.ring.Number(f))
		} else {
			l.notes.Free(fs[i : i+1])
		}
	}
}
