package index

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// errStale is matched when an index does not belong to the segment's present state.
var errStale = errors.New("the index is not of this segment as it is now")

// errDamaged is matched when the bytes of an index are not valid.
var errDamaged = errors.New("the index is damaged")

// Reader reads the index of one segment.
type Reader struct {
	f    *os.File
	sum  Summary
	raw  []byte
	last int64 // where the blocks so far end
}

// Open opens the index next to a segment file, if it belongs to the segment in its present state.
// The error fs.ErrNotExist means that there is no index; errStale and errDamaged mean that it
// cannot be used. The caller closes the Reader.
func Open(segment *os.File) (*Reader, error) {
	f, err := os.Open(segment.Name() + Suffix)
	if err != nil {
		return nil, err
	}
	r := &Reader{f: f}
	if err := r.check(segment); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return r, nil
}

// Close closes the index.
func (r *Reader) Close() error { return r.f.Close() }

// Summary returns the summary of the whole segment.
func (r *Reader) Summary() Summary { return r.sum }

// check reads the header and compares it with the segment.
func (r *Reader) check(segment *os.File) error {
	b := make([]byte, headerLen)
	if _, err := r.f.ReadAt(b, 0); err == io.EOF {
		return damaged(errShort)
	} else if err != nil {
		return err
	}
	var err error
	if r.sum, err = decodeSummary(b); err != nil {
		return damaged(err)
	}
	mine, err := r.f.Stat()
	if err != nil {
		return err
	}
	if mine.Size() != r.sum.Bytes {
		return damaged(fmt.Errorf("it has %d bytes and should have %d", mine.Size(), r.sum.Bytes))
	}
	theirs, err := segment.Stat()
	if err != nil {
		return err
	}
	switch {
	case theirs.Size() != r.sum.Size:
		return stale("the segment has %d bytes, and had %d", theirs.Size(), r.sum.Size)
	case mine.ModTime().Before(theirs.ModTime()):
		return stale("the segment was changed later")
	}
	return r.checkSegment(segment, theirs.Size())
}

func (r *Reader) checkSegment(segment io.ReaderAt, size int64) error {
	head, err := pcapng.ReadHead(segment, size)
	switch {
	case err != nil:
		return err
	case head.Segment.ID != r.sum.Segment:
		return stale("it is of another segment")
	}
	done, err := pcapng.Finished(segment, size)
	if err == nil && !done {
		err = stale("the segment is not closed")
	}
	return err
}

func damaged(why error) error { return fmt.Errorf("%w: %w", errDamaged, why) }

func stale(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errStale, fmt.Sprintf(format, args...))
}

// Find returns the parts of the segment that may have wanted packets, in file order.
func (r *Reader) Find(q Query) (parts []pcapng.Part, err error) {
	at := int64(headerLen)
	for range r.sum.sections {
		s, n, err := r.section(at)
		if err != nil {
			return nil, err
		}
		at += n
		parts = q.find(s, parts)
	}
	if at != r.sum.Bytes {
		return nil, damaged(errNumbers)
	}
	return parts, nil
}

// stored is a section as it is in the file.
type stored struct {
	blocks []block
	hashes []byte // 4 bytes each, ascending
	places []byte // the number of a block for each, 2 bytes
}

// section reads and checks the section at an offset, and returns its length. The section is valid until the
// next call.
func (r *Reader) section(at int64) (s stored, n int64, err error) {
	if r.sum.Bytes-at < int64(sectionLen(0, 0)) {
		return s, 0, damaged(errNumbers)
	}
	var head [sectionHeaderLen]byte
	if _, err := r.f.ReadAt(head[:], at); err != nil {
		return s, 0, cut(err)
	}
	blocks, entries := le.Uint32(head[4:]), le.Uint32(head[8:])
	if le.Uint32(head[:]) != sectionMagic || blocks == 0 || blocks > maxBlocks || entries > maxEntries+mostSeen+maxKeys {
		return s, 0, damaged(errNumbers)
	}
	n = int64(sectionLen(int(blocks), int(entries)))
	if n > r.sum.Bytes-at {
		return s, 0, damaged(errNumbers)
	}
	if int64(cap(r.raw)) < n {
		r.raw = make([]byte, n)
	}
	r.raw = r.raw[:n]
	if _, err := r.f.ReadAt(r.raw, at); err != nil {
		return s, 0, cut(err)
	}
	if crc32.Checksum(r.raw[:n-4], castagnoli) != le.Uint32(r.raw[n-4:]) {
		return s, 0, damaged(errChecksum)
	}
	s, err = r.split(int(blocks), int(entries))
	return s, n, err
}

// split decodes a section.
func (r *Reader) split(blocks, entries int) (s stored, err error) {
	raw := r.raw[sectionHeaderLen:]
	s.blocks = make([]block, blocks)
	for i := range s.blocks {
		b := decodeBlock(raw)
		raw = raw[blockLen:]
		if b.offset < r.last || b.offset > r.sum.Size-int64(b.length) || b.length == 0 {
			return s, damaged(errNumbers)
		}
		r.last = b.offset + int64(b.length)
		s.blocks[i] = b
	}
	s.hashes, s.places = raw[:4*entries], raw[4*entries:][:2*entries]
	for i := range entries {
		if int(le.Uint16(s.places[2*i:])) >= blocks {
			return s, damaged(errNumbers)
		}
	}
	return s, nil
}

// cut returns the error for a file that became shorter during the call.
func cut(err error) error {
	if err == io.EOF {
		return damaged(errShort)
	}
	return err
}
