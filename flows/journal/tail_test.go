package journal

import (
	"path/filepath"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestBeginsLate: the search for the end begins at the newest segment before which nothing can be
// missing. Here every segment has an end marker.
func TestBeginsLate(t *testing.T) {
	for _, c := range []struct {
		name    string
		durable uint64
		mended  bool
		number  uint64 // of the segment it begins with
	}{
		{"marks call it durable", 1, true, 25},
		{"its writer completed it", 0, false, 25},
		{"nothing says anything", 0, true, 25 - mostOpen},
	} {
		prefix := filepath.Join(t.TempDir(), "wal")
		r := newRun(2, 1)
		for i := range 25 {
			m := r.file(t)
			r.batch(m, 2, 0)
			r.batch(m, 2, c.durable)
			m.ending(c.mended).write(t, segmentPath(prefix, i+1))
		}
		l, err := Open(prefix)
		testenv.Must(t, err)
		reader := l.Reader(0)
		if err := reader.beginLate(1); err != nil || reader.at.number != c.number || reader.next != 4*c.number-3 {
			t.Errorf("%s: from segment %d on, record %d: %v", c.name, reader.at.number, reader.next, err)
		}
		expect(t, readOn(t, reader), 4*c.number-3, 100)
		testenv.Check(t, reader.Close())
		newRun(5, 101).file(t).write(t, segmentPath(prefix, 26))
		if end, err := l.tail(nil, 1, never); err != nil || end.Next != 101 {
			t.Errorf("%s: %+v, %v", c.name, end, err)
		}
	}
}
