package flows

import (
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/nvme"
)

// maxOpen is how many segments of a flow are with the disk at once: the current one and those that are full and not durable yet.
const maxOpen = 16

// segment is one capture file, or one slot of a ring on a device. The worker has it from taking until retiring it;
// before and after, the store's goroutines have it.
type segment struct {
	path   string // as prepared
	number int
	target *nvme.Target
	id     pcapng.SegmentID
	align  uint32
	size   uint64
	enough uint64 // bytes beyond which no second batch goes; 0: size
	base   uint64 // where it begins in the target
	first  uint64 // number of the first packet of the run, on a ring

	index    uint32 // of the target in the flow's queue
	before   uint64 // packets of the flow in front of the segment's first
	next     uint64 // offset of the next batch, from the base
	sequence uint64 // of the last batch
	opened   time.Time
	reached  atomic.Uint64          // next, for who grows the file
	allowed  atomic.Uint64          // how far it may be written, by who grows it
	growing  sync.Mutex             // held while the file is grown; guards finished
	finished bool                   // the file grows no more
	last     mark                   // the flow's last batch, once no more will come here
	damaged  bool                   // some of its batches did not reach the disk
	final    atomic.Pointer[string] // its path once it is in use; nil: not renamed yet
}

// name is the path it can be found at.
func (s *segment) name() string {
	if p := s.final.Load(); p != nil {
		return *p
	}
	return s.path
}

// named reports whether its name is final and durable.
func (s *segment) named() bool { return s.final.Load() != nil }

// takes reports whether a batch of n bytes fits, and the mark that ends the
// segment behind it.
func (s *segment) takes(n uint64) bool {
	limit := s.size
	if s.grows() {
		limit = s.allowed.Load()
	} else if s.enough > 0 && s.sequence > 0 {
		limit = s.enough
	}
	return s.next+n+uint64(s.align) <= limit
}

// grows reports whether it has no size of its own.
func (s *segment) grows() bool { return s.size == endless }

// safe reports whether all its batches are durable and its name is.
func (s *segment) safe(durable mark) bool {
	return durable.number >= s.last.number && s.named()
}

// batch describes the next batch, which packets of the flow are in front of.
func (s *segment) batch(durable, packets uint64) pcapng.Batch {
	return pcapng.Batch{
		Segment: s.id, Align: s.align, Sequence: s.sequence + 1,
		Offset: s.next, Durable: durable, FirstPacket: s.first + packets - s.before,
	}
}

// newSegmentID draws a random id.
func newSegmentID() (id pcapng.SegmentID, err error) {
	if _, err = rand.Read(id[:]); err != nil {
		err = fmt.Errorf("draw a segment id: %w", err)
	}
	return id, err
}
