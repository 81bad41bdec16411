package flows

import "github.com/unifiedd/unifiedd/flows/segment"

// window is the most batches that may be on their way to the disk at once; a
// power of two.
const window = 256

// track follows batches from submission to the disk. Writes complete in any
// order; written and durable are always prefixes without a gap.
type track struct {
	ring      [window]segment.Position
	done      [window]bool
	packets   [window]uint64   // of each batch alone
	submitted segment.Position // the last batch submitted
	written   segment.Position // all batches up to this one are written
	durable   segment.Position // all batches up to this one are on stable storage

	packetsWritten uint64 // of all batches written, also behind a gap
}

// room reports whether another batch may be submitted.
func (t *track) room() bool { return t.submitted.Number-t.written.Number < window }

// idle reports whether everything submitted is written.
func (t *track) idle() bool { return t.submitted.Number == t.written.Number }

// submit notes that a batch of so many packets and bytes, ending at end of the
// segment, is on its way.
func (t *track) submit(s *segment.Segment, end, packets, bytes uint64) {
	t.submitted.Number++
	t.submitted.Packets += packets
	t.submitted.Bytes += bytes
	t.submitted.Segment, t.submitted.End = s, end
	i := t.submitted.Number % window
	t.ring[i], t.done[i], t.packets[i] = t.submitted, false, packets
}

// complete notes that a batch is written, and moves the prefix.
func (t *track) complete(number uint64) {
	t.done[number%window] = true
	t.packetsWritten += t.packets[number%window]
	for t.written.Number < t.submitted.Number {
		i := (t.written.Number + 1) % window
		if !t.done[i] {
			return
		}
		t.written = t.ring[i]
	}
}

// durableIn is the offset up to which a segment is known to be durable.
func (t *track) durableIn(s *segment.Segment) uint64 {
	if t.durable.Segment == s {
		return t.durable.End
	}
	return 0
}
