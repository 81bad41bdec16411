package pcapng

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// counted counts the bytes that are read.
type counted struct {
	io.ReaderAt
	bytes int64
}

func (c *counted) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.ReaderAt.ReadAt(p, off)
	c.bytes += int64(n)
	return n, err
}

// times returns the times of a file.
func times(t *testing.T, file []byte) Times {
	t.Helper()
	got, err := ReadTimes(bytes.NewReader(file), int64(len(file)))
	testenv.Must(t, err)
	return got
}

// timed returns a segment of n batches of four packets, closed on request.
func timed(align uint32, n uint64, closed bool) (s *segment, first, last uint64) {
	s = newSegment(align)
	for i := range n {
		s.add(packedLayout, 0, testPacket(4*i, 60), testPacket(4*i+1, 485), testPacket(4*i+3, 1514), testPacket(4*i+2, 300))
	}
	if closed {
		s.add(packedLayout, 0) // statistics only, as a flow that stops writes them
		s.add(layout{align, 4}, uint64(len(s.file)))
	}
	return s, testPacket(0, 0).ns, testPacket(4*n-1, 0).ns
}

func TestReadTimes(t *testing.T) {
	for _, align := range []uint32{512, 4096} {
		s, first, last := timed(align, 9, true)
		if got := times(t, s.file); got != (Times{s.id, first, last}) {
			t.Errorf("align %d: %+v, not from %d to %d", align, got, first, last)
		}
		s, first, _ = timed(align, 9, false)
		if got := times(t, s.file); got != (Times{s.id, first, 0}) {
			t.Errorf("align %d, not closed: %+v", align, got)
		}
	}
}

// TestReadTimesOfLong: ReadTimes finds the last batch even if that is longer than one read, and reads little
// else.
func TestReadTimesOfLong(t *testing.T) {
	s := newSegment(512)
	for i := range uint64(4) {
		var many []packet
		for j := range uint64(1500) {
			many = append(many, testPacket(i*1500+j, 1514))
		}
		s.add(packedLayout, 0, many...)
	}
	s.add(layout{512, 4}, uint64(len(s.file)))
	file := &counted{ReaderAt: bytes.NewReader(s.file)}
	got, err := ReadTimes(file, int64(len(s.file)))
	if err != nil || got.First != testPacket(0, 0).ns || got.Last != testPacket(5999, 0).ns {
		t.Errorf("%+v, %v", got, err)
	}
	if limit := int64(len(s.file)) * 3 / 4; file.bytes > limit {
		t.Errorf("%d bytes read of %d", file.bytes, len(s.file))
	}
}

// TestLatestTime: LatestTime follows the marks, whether the segment is closed or not.
func TestLatestTime(t *testing.T) {
	for _, closed := range []bool{false, true} {
		s, first, last := timed(512, 9, closed)
		if got, err := LatestTime(bytes.NewReader(s.file), int64(len(s.file))); got != last || err != nil {
			t.Errorf("closed %v: %d, not %d: %v", closed, got, last, err)
		}
		got, err := FirstTime(bytes.NewReader(s.file), int64(len(s.file)))
		if got != (Times{Segment: s.id, First: first}) || err != nil {
			t.Errorf("closed %v: %+v, %v", closed, got, err)
		}
	}
	empty := newSegment(512)
	if got, err := LatestTime(bytes.NewReader(empty.file), int64(len(empty.file))); got != 0 || err != nil {
		t.Errorf("without packets: %d, %v", got, err)
	}
}

// TestReadTimesInDoubt: ReadTimes returns neither a time nor an error for a damaged part.
func TestReadTimesInDoubt(t *testing.T) {
	for name, c := range map[string]struct {
		spoil       func(*segment)
		first, last bool
	}{
		"first batch torn":          {func(s *segment) { s.wipe(0, 0) }, false, false},
		"first packet torn":         {func(s *segment) { s.wipe(0, MinMarkLen) }, false, false},
		"last batch torn":           {func(s *segment) { s.wipe(8, 0) }, true, false},
		"last batch's tail torn":    {func(s *segment) { s.wipe(8, s.batches[8].length-512) }, true, false},
		"no end":                    {func(s *segment) { s.wipe(10, 0) }, true, false},
		"one in the middle is torn": {func(s *segment) { s.wipe(4, 0) }, true, true},
	} {
		s, _, _ := timed(512, 9, true)
		c.spoil(s)
		if got := times(t, s.file); (got.First != 0) != c.first || (got.Last != 0) != c.last {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if _, err := ReadTimes(bytes.NewReader(make([]byte, 4096)), 4096); !errors.Is(err, ErrNotSegment) {
		t.Errorf("zeros: %v", err)
	}
}
