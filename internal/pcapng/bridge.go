package pcapng

import "fmt"

// maxBridge is the longest bridge in bytes, a multiple of every alignment and well under MaxBlockLen.
const maxBridge = 256 << 10

// hole handles the bytes from start to end, between two good batches.
func (r *recovery) hole(start, end int64) error {
	bridged, err := r.isBridged(start, end)
	if err != nil {
		return err
	}
	r.report.addHole(Hole{Offset: start, Length: end - start, Bridged: bridged})
	if bridged {
		return nil
	}
	r.bridged = true
	if r.dry {
		return nil
	}
	return r.bridge(start, end)
}

// isBridged reports whether bridges already tile the range.
func (r *recovery) isBridged(start, end int64) (bool, error) {
	for start < end {
		b, k, ok, err := r.markAt(start)
		if err != nil || !ok || k != kindBridge {
			return false, err
		}
		next := start + int64(b.Length)
		if intact, err := r.intact(&b, k, next); err != nil || !intact {
			return false, err
		}
		start = next
	}
	return start == end, nil
}

// bridge tiles the range with bridges.
func (r *recovery) bridge(start, end int64) error {
	for start < end {
		n := min(end-start, maxBridge)
		if err := r.writeBridge(start, uint32(n)); err != nil {
			return fmt.Errorf("bridge %d bytes at offset %d: %w", n, start, err)
		}
		start += n
	}
	return nil
}

// writeBridge writes a mark's fields and the trailing length, and leaves the bytes between unchanged, since
// readers skip them.
func (r *recovery) writeBridge(offset int64, length uint32) error {
	var mark [MinMarkLen]byte
	le.PutUint32(mark[:], TypeMark)
	le.PutUint32(mark[4:], length)
	putMarkFields(mark[:], &Batch{
		Segment: r.report.Segment, Align: r.report.Align, Sequence: r.sequence,
		Offset: uint64(offset), Length: length, FirstPacket: r.next,
	}, kindBridge)
	if _, err := r.f.WriteAt(mark[:], offset); err != nil {
		return err
	}
	_, err := r.f.WriteAt(le.AppendUint32(nil, length), offset+int64(length)-4)
	return err
}
