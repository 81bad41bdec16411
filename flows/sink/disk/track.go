package disk

import "github.com/unifiedd/unifiedd/flows/segment"

// queueDepth is the largest number of batches in flight to the output; a power of two.
const queueDepth = 256

// tracker follows batches from submission to durability. Writes complete in any order; written and
// durable are prefixes without a gap.
type tracker struct {
	ring      [queueDepth]segment.Position
	done      [queueDepth]bool
	packets   [queueDepth]uint64 // in each batch
	submitted segment.Position   // the last batch submitted
	written   segment.Position   // all batches up to this one are written
	durable   segment.Position   // all batches up to this one are on stable storage

	packetsWritten uint64 // in all written batches, including those after a gap
}

// room reports whether another batch may be submitted.
func (t *tracker) room() bool { return t.submitted.Number-t.written.Number < queueDepth }

// idle reports whether everything submitted is written.
func (t *tracker) idle() bool { return t.submitted.Number == t.written.Number }

// submit records a batch of packets and bytes that ends at end of the segment.
func (t *tracker) submit(s *segment.Segment, end, packets, bytes uint64) {
	t.submitted.Number++
	t.submitted.Packets += packets
	t.submitted.Bytes += bytes
	t.submitted.Segment, t.submitted.End = s, end
	i := t.submitted.Number % queueDepth
	t.ring[i], t.done[i], t.packets[i] = t.submitted, false, packets
}

// complete records that a batch is written.
func (t *tracker) complete(number uint64) {
	t.done[number%queueDepth] = true
	t.packetsWritten += t.packets[number%queueDepth]
	for t.written.Number < t.submitted.Number {
		i := (t.written.Number + 1) % queueDepth
		if !t.done[i] {
			return
		}
		t.written = t.ring[i]
	}
}

// durableIn returns the offset up to which a segment is durable.
func (t *tracker) durableIn(s *segment.Segment) uint64 {
	if t.durable.Segment == s {
		return t.durable.End
	}
	return 0
}
