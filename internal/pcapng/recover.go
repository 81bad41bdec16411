package pcapng

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// ErrNotSegment means that Recover must not change a file: it has no head unit of ours.
var ErrNotSegment = errors.New("not a capture segment of unifiedd, left as it is")

// File is the interface that Recover needs. An *os.File implements it, if it was opened for reading and
// writing without O_DIRECT and O_APPEND.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Seeker // moves; on Linux it also answers SEEK_DATA
	Truncate(size int64) error
	Sync() error
}

// Options of Recover.
type Options struct {
	DryRun bool // find out and report, change nothing
	// Numbered is for a segment of a ring: every packet must have the number that follows from its batch's
	// mark, and the segment may end before the file does.
	Numbered bool
}

// Recover recovers a segment after a crash. It keeps every good batch, overwrites the gaps between
// them with blocks that readers skip, truncates the file after the last one, and flushes it, even
// if it found no fault. So the kept bytes of the report are durable. Recover refuses a file without
// one of our head units with ErrNotSegment. A second Recover, or one after a crash during the
// first, leaves the same file. No other process may write the file during the call. After an error
// the report covers the completed part.
func Recover(f File, o Options) (Report, error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return Report{}, fmt.Errorf("recover capture file: find its end: %w", err)
	}
	r := recovery{f: f, dry: o.DryRun, numbered: o.Numbered, w: newWindow(f, size), report: Report{Size: size}}
	if err := r.readHead(); err != nil {
		return r.report, err
	}
	if err := r.scan(); err != nil {
		return r.report, fmt.Errorf("recover capture file: %w", err)
	}
	return r.report, r.finish()
}

// recovery is one run over one segment.
type recovery struct {
	f        File
	dry      bool
	numbered bool
	each     func(Batch, []byte) error // of every good batch; nil: none
	batch    []byte                    // the batch for each
	head     Head
	w        *window
	check    checker
	report   Report
	doubts   doubts

	good     int64  // end of the last good batch
	sequence uint64 // of the last good batch
	next     uint64 // number of the packet after it
	bridged  bool   // we wrote a bridge
	ending   Batch  // the mark with which the writer completed the segment; without a length: none was seen
}

// readHead checks the head unit and reads the segment's properties from the mark at its end.
func (r *recovery) readHead() error {
	blocks := reader{w: r.w, end: min(r.report.Size, MaxHeadLen)}
	for {
		b, err := blocks.Next()
		switch {
		case err == io.EOF:
			return notSegment(errNoHead)
		case errors.Is(err, errFormat):
			return notSegment(err)
		case err != nil:
			return err
		}
		if err := r.check.block(b); err != nil {
			return notSegment(err)
		}
		switch b.Type {
		case TypeSection:
			r.head.Section = bytes.Clone(b.raw)
		case TypeInterface:
			r.head.Interfaces = append(r.head.Interfaces, bytes.Clone(b.raw))
		case TypeMark:
			return r.takeHead(b)
		default:
			return notSegment(errNoHead)
		}
	}
}

var errNoHead = errors.New("no head mark before the first record")

func notSegment(reason error) error { return fmt.Errorf("%w: %w", ErrNotSegment, reason) }

// takeHead records the head unit as the first good part of the file.
func (r *recovery) takeHead(b Block) error {
	head, k, err := parseMark(b.raw)
	end := b.Offset + int64(b.Len())
	if err != nil || k != kindHead || head.Offset != 0 || int64(head.Length) != end || r.check.interfaces == 0 {
		return notSegment(errNoHead)
	}
	r.report.Segment, r.report.Align, r.report.Interfaces = head.Segment, head.Align, r.check.interfaces
	r.report.FirstPacket = head.FirstPacket
	r.head.Segment = Segment{ID: head.Segment, Align: head.Align, FirstPacket: head.FirstPacket}
	r.head.Len = end
	r.good, r.next = end, head.FirstPacket
	return nil
}

// finish truncates the file after the last good batch and makes everything durable.
func (r *recovery) finish() error {
	p := &r.report
	p.Kept, p.Cut, p.Doubtful = r.good, p.Size-r.good, r.doubts.packets
	p.Clean = p.Cut == 0 && !r.bridged
	if p.HoleCount == 0 {
		p.PacketsBeforeHole = p.Packets
	}
	if r.dry {
		return nil
	}
	if p.Cut > 0 {
		if err := r.f.Truncate(r.good); err != nil {
			return fmt.Errorf("recover capture file: cut it at offset %d: %w", r.good, err)
		}
	}
	if err := r.f.Sync(); err != nil {
		return fmt.Errorf("recover capture file: flush it: %w", err)
	}
	return nil
}
