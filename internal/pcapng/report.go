package pcapng

import "fmt"

// maxHoles bounds Report.Holes. A file with more has other damage than a crash causes.
const maxHoles = 1024

// Hole is a range of a segment between two good batches that has no good batch.
type Hole struct {
	Offset, Length int64
	Bridged        bool // by an earlier recovery
}

// Report says what Recover found and did, or would do in a dry run.
type Report struct {
	Segment    SegmentID
	Align      uint32
	Interfaces uint32

	Size  int64 // bytes, as found
	Kept  int64 // bytes, after: the end of the last good batch
	Cut   int64 // bytes cut from the end: never written, or torn
	Clean bool  // nothing to mend: no new hole and nothing to cut
	Ended bool  // of a ring: the end that its writer made is there

	Batches     uint64 // good ones
	Packets     uint64 // in them
	FirstPacket uint64 // the number the segment begins with
	LastPacket  uint64 // number of the last packet kept; means nothing when Packets is 0

	Torn           uint64 // batches whose mark was intact and whose blocks were not, or that came out of order
	MissingBatches uint64 // lost before a good batch, by the sequence
	MissingPackets uint64 // lost before a good batch, by the packet numbers

	Holes             []Hole // the first 1024, in file order
	HoleCount         uint64
	HoleBytes         int64
	PacketsBeforeHole uint64 // kept before the first hole; all if there is no hole

	Durable  uint64 // the highest offset any mark of this segment called durable
	Doubtful uint64 // packets in good batches not called durable by a mark; a proper close made them durable all the same
}

// DurableLost reports whether bytes are missing that the writer had declared durable. Then the disk has not
// obeyed a flush.
func (r *Report) DurableLost() bool {
	return r.Durable > uint64(r.Kept) || len(r.Holes) > 0 && uint64(r.Holes[0].Offset) < r.Durable
}

// String is the report as one line for a log.
func (r *Report) String() string {
	s := fmt.Sprintf("%d packets in %d batches, %d bytes", r.Packets, r.Batches, r.Kept)
	if r.HoleCount > 0 {
		s += fmt.Sprintf("; %d holes of %d bytes bridged, the first after %d packets, %d packets lost in them",
			r.HoleCount, r.HoleBytes, r.PacketsBeforeHole, r.MissingPackets)
	}
	if r.Cut > 0 {
		s += fmt.Sprintf("; %d bytes cut from the end", r.Cut)
	}
	if r.Clean {
		s += "; nothing to recover"
	}
	return s
}

// addHole counts a hole found in front of a good batch.
func (r *Report) addHole(h Hole) {
	if r.HoleCount == 0 {
		r.PacketsBeforeHole = r.Packets
	}
	r.HoleCount++
	r.HoleBytes += h.Length
	if len(r.Holes) < maxHoles {
		r.Holes = append(r.Holes, h)
	}
}
