package segment

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
const MaxOpen = 16

// segment is one capture file, or one slot of a ring on a device. The worker has it from taking until retiring it;
// before and after, the store's goroutines have it.
type Segment struct {
	preparedPath string // as prepared
	Number       int
	Target       *nvme.Target
	id           pcapng.SegmentID
	align        uint32
	size         uint64
	softLimit    uint64 // bytes beyond which no second batch goes; 0: size
	Base         uint64 // where it begins in the target
	firstPacket  uint64 // number of the first packet of the run, on a ring

	Index     uint32 // of the target in the flow's queue
	Before    uint64 // packets of the flow in front of the segment's first
	Next      uint64 // offset of the next batch, from the base
	Sequence  uint64 // of the last batch
	Opened    time.Time
	Reached   atomic.Uint64          // next, for who grows the file
	allowed   atomic.Uint64          // how far it may be written, by who grows it
	growing   sync.Mutex             // held while the file is grown; guards finished
	sealed    bool                   // the file grows no more
	Last      Position               // the flow's last batch, once no more will come here
	Damaged   bool                   // some of its batches did not reach the disk
	finalPath atomic.Pointer[string] // its path once it is in use; nil: not renamed yet
}

// name is the path it can be found at.
func (s *Segment) Path() string {
	if p := s.finalPath.Load(); p != nil {
		return *p
	}
	return s.preparedPath
}

// named reports whether its name is final and durable.
func (s *Segment) NameDurable() bool { return s.finalPath.Load() != nil }

// takes reports whether a batch of n bytes fits, and the mark that ends the
// segment behind it.
func (s *Segment) Fits(n uint64) bool {
	limit := s.size
	if s.Unbounded() {
		limit = s.allowed.Load()
	} else if s.softLimit > 0 && s.Sequence > 0 {
		limit = s.softLimit
	}
	return s.Next+n+uint64(s.align) <= limit
}

// grows reports whether it has no size of its own.
func (s *Segment) Unbounded() bool { return s.size == unboundedSize }

// safe reports whether all its batches are durable and its name is.
func (s *Segment) Durable(durable Position) bool {
	return durable.Number >= s.Last.Number && s.NameDurable()
}

// batch describes the next batch, which packets of the flow are in front of.
func (s *Segment) Batch(durable, packets uint64) pcapng.Batch {
	return pcapng.Batch{
		Segment: s.id, Align: s.align, Sequence: s.Sequence + 1,
		Offset: s.Next, Durable: durable, FirstPacket: s.firstPacket + packets - s.Before,
	}
}

// newSegmentID draws a random id.
func newSegmentID() (id pcapng.SegmentID, err error) {
	if _, err = rand.Read(id[:]); err != nil {
		err = fmt.Errorf("draw a segment id: %w", err)
	}
	return id, err
}
