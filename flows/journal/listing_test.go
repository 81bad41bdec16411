package journal

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// renamed is a log that a flow writes while a reader lists its segments. The reader's directory is read as
// the test says.
type renamed struct {
	*testing.T
	prefix string
	files  *files
	log    *Log
	before []func([]pcapng.Named) []pcapng.Named // what the next readings of the directory find instead
}

func newRenamed(t *testing.T) *renamed {
	t.Helper()
	r := &renamed{T: t, prefix: filepath.Join(t.TempDir(), "wal")}
	r.files = newFiles(r.prefix)
	list := r.files.read
	r.files.read = func() ([]pcapng.Named, error) {
		found, err := list()
		if len(r.before) > 0 {
			found, r.before = r.before[0](found), r.before[1:]
		}
		return found, err
	}
	r.log = &Log{path: r.prefix, set: known{r.files}}
	return r
}

// prepared is the path of a segment before it is begun.
func (r *renamed) prepared(number int) string { return pcapng.NewNames(r.prefix).Prepared(number) }

// without finds a directory in which a segment has neither of its names.
func without(number int) func([]pcapng.Named) []pcapng.Named {
	return func(found []pcapng.Named) (left []pcapng.Named) {
		for _, f := range found {
			if f.Number != number {
				left = append(left, f)
			}
		}
		return left
	}
}

// early finds a directory in which a segment has the name that it had before it was begun.
func (r *renamed) early(number int) func([]pcapng.Named) []pcapng.Named {
	return func(found []pcapng.Named) []pcapng.Named {
		for i := range found {
			if found[i].Number == number {
				found[i] = pcapng.Named{Path: r.prepared(number), Number: number, Prepared: true}
			}
		}
		return found
	}
}

// poll reads what is there with Poll, which must not report anything but records.
func (r *renamed) poll(from *Reader) (positions []uint64) {
	r.Helper()
	for range 3 { // calls again where there is no record, as one does who waits
		for {
			rec, err := from.Poll()
			if err == io.EOF {
				break
			}
			if err != nil {
				r.Fatalf("behind record %d: %v", from.Position()-1, err)
			}
			check(r, &rec)
			positions = append(positions, rec.Position)
		}
	}
	return positions
}

// expect polls and fails unless it gets exactly the records from one to another.
func (r *renamed) expect(from *Reader, first, last uint64) {
	r.Helper()
	expect(r, said{positions: r.poll(from)}, first, last)
}

// renames are what a reader of the directory may find while a flow renames segment 2 and then prepares segment 3.
var renames = map[string]func(r *renamed) func([]pcapng.Named) []pcapng.Named{
	"neither name": func(*renamed) func([]pcapng.Named) []pcapng.Named { return without(2) },
	"the old name": func(r *renamed) func([]pcapng.Named) []pcapng.Named { return r.early(2) },
	"both names": func(r *renamed) func([]pcapng.Named) []pcapng.Named {
		return func(found []pcapng.Named) []pcapng.Named {
			return append([]pcapng.Named{{Path: r.prepared(2), Number: 2, Prepared: true}}, found...)
		}
	},
}

// TestListedWhileRenamed: a reader lists the segments while the flow renames the one that has the next record. It
// does not go on with the segment behind it, which is prepared and has no records, nor report records as lost. The
// segment is of the same run, or the first one of the next run.
func TestListedWhileRenamed(t *testing.T) {
	for name, found := range renames {
		for _, same := range []bool{true, false} {
			t.Run(name+map[bool]string{true: ", same run", false: ", next run"}[same], func(t *testing.T) {
				r := newRenamed(t)
				first := newRun(2, 1)
				m := first.file(t)
				first.batch(m, 3, 0)
				m.end().write(t, segmentPath(r.prefix, 1))
				from := r.log.Uncommitted(2)
				r.expect(from, 2, 3)
				second := first
				if !same {
					second = newRun(4, 4)
				}
				m = second.file(t)
				second.batch(m, 3, 0)
				m.write(t, segmentPath(r.prefix, 2))
				second.file(t).write(t, r.prepared(3))
				r.before = append(r.before, found(r))
				r.expect(from, 4, 6)
				second.batch(m, 2, 0)
				m.write(t, segmentPath(r.prefix, 2))
				r.expect(from, 7, 8)
				testenv.Check(t, errors.Join(from.Close(), r.log.Close()))
			})
		}
	}
}

// TestBegunWhileRenamed: a reader begins at a record while the flow renames the segment that has it. All segments
// before it were removed, or there is one.
func TestBegunWhileRenamed(t *testing.T) {
	for name, found := range renames {
		for _, before := range []bool{true, false} {
			t.Run(name+map[bool]string{true: ", behind another", false: ", the first"}[before], func(t *testing.T) {
				r := newRenamed(t)
				one := newRun(2, 1)
				m := one.file(t)
				one.batch(m, 3, 0)
				if m.end(); before {
					m.write(t, segmentPath(r.prefix, 1))
				}
				m = one.file(t)
				one.batch(m, 3, 0)
				m.write(t, segmentPath(r.prefix, 2))
				one.file(t).write(t, r.prepared(3))
				r.before = append(r.before, found(r))
				from := r.log.Uncommitted(5)
				r.expect(from, 5, 6)
				one.batch(m, 2, 0)
				m.write(t, segmentPath(r.prefix, 2))
				r.expect(from, 7, 8)
				testenv.Check(t, errors.Join(from.Close(), r.log.Close()))
			})
		}
	}
}

// TestSeekAhead: a reader begins at a record that is not written yet, and the log goes on to another segment before it
// is.
func TestSeekAhead(t *testing.T) {
	for _, segments := range []int{1, 3} { // that lie between
		prefix := filepath.Join(t.TempDir(), "wal")
		one := newRun(2, 1)
		m := one.file(t)
		one.batch(m, 3, 0)
		m.end().write(t, segmentPath(prefix, 1))
		l, err := Open(prefix)
		testenv.Must(t, err)
		r := l.Uncommitted(uint64(4 + 3*segments))
		if _, err := r.Poll(); err != io.EOF {
			t.Fatalf("there is no record yet: %v", err)
		}
		for n := range segments {
			m := one.file(t)
			one.batch(m, 2, 0)
			one.batch(m, 1, 0)
			m.end().write(t, segmentPath(prefix, 2+n))
		}
		if rec, err := r.Poll(); err != io.EOF {
			t.Fatalf("record %d comes too early: %v", rec.Position, err)
		}
		m = one.file(t)
		one.batch(m, 3, 0)
		m.write(t, segmentPath(prefix, 2+segments))
		rec, err := r.Poll()
		if err != nil || rec.Position != uint64(4+3*segments) {
			t.Errorf("record %d: %v", rec.Position, err)
		}
		testenv.Check(t, errors.Join(r.Close(), l.Close()))
		testenv.Check(t, os.Remove(segmentPath(prefix, 1)))
	}
}

// TestShortened: a segment without records is cut to its length after a reader has asked for that. It has no records,
// and nothing is wrong.
func TestShortened(t *testing.T) {
	m := newRun(2, 1).file(t)
	for _, whole := range []bool{false, true} {
		if whole {
			m.end()
		}
		long := func() (int64, error) { return int64(len(m.raw)) + liveSegment, nil }
		for name, position := range map[string]func(*segment) (uint64, error){"first": (*segment).first, "begins": (*segment).begins} {
			s, err := newSegment(piece{number: 1, name: name}, bytes.NewReader(m.raw), nil, long, false)
			testenv.Must(t, err)
			if p, err := position(s); p != 0 || err != nil {
				t.Errorf("%s of a segment that is whole: %v: record %d, %v", name, whole, p, err)
			}
		}
	}
}
