package flows

// window is the most batches that may be on their way to the disk at once; a
// power of two.
const window = 256

// track follows batches from submission to the disk. Writes complete in any
// order; written and durable are always prefixes without a gap.
type track struct {
	ring      [window]mark
	done      [window]bool
	packets   [window]uint64 // of each batch alone
	submitted mark           // the last batch submitted
	written   mark           // all batches up to this one are written
	durable   mark           // all batches up to this one are on stable storage

	packetsWritten uint64 // of all batches written, also behind a gap
}

// room reports whether another batch may be submitted.
func (t *track) room() bool { return t.submitted.number-t.written.number < window }

// idle reports whether everything submitted is written.
func (t *track) idle() bool { return t.submitted.number == t.written.number }

// submit notes that a batch of so many packets and bytes, ending at end of the
// segment, is on its way.
func (t *track) submit(s *segment, end, packets, bytes uint64) {
	t.submitted.number++
	t.submitted.packets += packets
	t.submitted.bytes += bytes
	t.submitted.segment, t.submitted.end = s, end
	i := t.submitted.number % window
	t.ring[i], t.done[i], t.packets[i] = t.submitted, false, packets
}

// complete notes that a batch is written, and moves the prefix.
func (t *track) complete(number uint64) {
	t.done[number%window] = true
	t.packetsWritten += t.packets[number%window]
	for t.written.number < t.submitted.number {
		i := (t.written.number + 1) % window
		if !t.done[i] {
			return
		}
		t.written = t.ring[i]
	}
}

// durableIn is the offset up to which a segment is known to be durable.
func (t *track) durableIn(s *segment) uint64 {
	if t.durable.segment == s {
		return t.durable.end
	}
	return 0
}
