package journal

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"testing"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// halfVisible damages the first record of a batch as a reader may see one whose writer has not written all of its pages
// yet: its structure is whole, and its payload is not, or its header, too.
func (m *made) halfVisible(batch int, header bool) (whole []byte) {
	whole = bytes.Clone(m.raw)
	at := m.batches[batch]
	i := at.offset + bytes.Index(m.raw[at.offset:at.offset+at.length], []byte("uMSG"))
	if header {
		clear(m.raw[i : i+protocol.HeaderLen])
	} else {
		m.raw[i+protocol.HeaderLen+1] ^= 1
	}
	return whole
}

// TestSeekHalfVisible: a reader begins at a record that is being written. It returns this record when it is whole, and never
// one behind it.
func TestSeekHalfVisible(t *testing.T) {
	for _, c := range []struct {
		name   string
		before int // records of earlier batches
		with   int // records of the batch, the wanted one first
	}{
		{"behind others", 3, 2}, {"the first of the log", 0, 2}, {"alone", 0, 1}, {"alone behind others", 3, 1},
	} {
		for _, header := range []bool{false, true} {
			for _, prove := range []bool{false, true} {
				t.Run(fmt.Sprint(c.name, ", header ", header, ", prove ", prove), func(t *testing.T) {
					path := filepath.Join(t.TempDir(), "wal")
					run := newVerifiedRun(2, 1)
					m := run.file(t)
					if c.before > 0 {
						run.batch(m, c.before, 0)
					}
					wanted := run.next
					run.batch(m, c.with, 0)
					whole := m.halfVisible(len(m.batches)-1, header)
					m.write(t, segmentPath(path, 1))
					l, err := Open(path)
					testenv.Must(t, err)
					r := l.Uncommitted(wanted)
					for range 3 {
						if rec, err := r.read(prove); err != io.EOF {
							t.Fatalf("before it is whole: record %d, %v", rec.Position, err)
						}
					}
					m.raw = whole
					run.batch(m, 3, 0)
					m.write(t, segmentPath(path, 1))
					for next := wanted; next < run.next; next++ {
						rec, err := r.read(prove)
						for again := 0; err == io.EOF && again < 3; again++ {
							rec, err = r.read(prove)
						}
						if err != nil || rec.Position != next {
							t.Fatalf("record %d where %d should be, %v", rec.Position, next, err)
						}
					}
					testenv.Check(t, r.Close())
					testenv.Check(t, l.Close())
				})
			}
		}
	}
}

// TestSeekPastDamage: damage in front of the record that is wanted does not keep a reader from it, and damage of this
// record is a gap once it is certain.
func TestSeekPastDamage(t *testing.T) {
	for _, header := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "wal")
		run := newVerifiedRun(2, 1)
		m := run.file(t)
		run.batch(m, 2, 0)
		run.batch(m, 2, 0)
		run.batch(m, 2, m.here())
		m.halfVisible(1, header) // record 3
		m.write(t, segmentPath(path, 1))
		l, err := Open(path)
		testenv.Must(t, err)
		for from := uint64(1); from <= 6; from++ {
			r := l.Uncommitted(from)
			all := readOn(t, r)
			want := []uint64{1, 2, 4, 5, 6}
			for len(want) > 0 && want[0] < from {
				want = want[1:]
			}
			gaps := 0
			if from <= 3 {
				gaps = 1
			}
			if fmt.Sprint(all.positions) != fmt.Sprint(want) || len(all.gaps) != gaps {
				t.Errorf("header %v, from %d: records %v and gaps %v; it should be %v", header, from, all.positions, all.gaps, want)
			}
			testenv.Check(t, r.Close())
		}
		testenv.Check(t, l.Close())
	}
}
