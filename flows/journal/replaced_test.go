package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/ring"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestUnusedReplaced: a reader waits in the segment that a run has prepared. The run ends without a record, and the
// next one gives the segment's number to another. The reader goes on there, not behind it, and says what was cut off.
func TestUnusedReplaced(t *testing.T) {
	for start := uint64(2); start <= 4; start++ { // of the last run
		for _, cut := range []bool{false, true} { // the unused segment has got the mark of a recovery
			t.Run(fmt.Sprint("file from ", start, " ", cut), func(t *testing.T) {
				prefix := filepath.Join(t.TempDir(), "wal")
				prepared := pcapng.NewNames(prefix).Prepared
				first := newRun(2, 1)
				m := first.file(t)
				first.batch(m, 3, 0)
				m.end().write(t, segmentPath(prefix, 1))
				newRun(4, 4).file(t).write(t, prepared(2))
				l, err := Open(prefix)
				testenv.Must(t, err)
				r := l.Uncommitted(1)
				expect(t, readOn(t, r), 1, 3)
				if cut {
					mend(t, prepared(2))
					expect(t, readOn(t, r), 1, 0)
				}
				testenv.Must(t, os.Remove(prepared(2)))
				expect(t, readOn(t, r), 1, 0)
				goOn(t, r, start, func(last *run, number int, used bool) {
					m := last.file(t)
					if !used {
						m.write(t, prepared(number))
						return
					}
					last.batch(m, 3, 0)
					m.write(t, segmentPath(prefix, number))
				})
				testenv.Check(t, errors.Join(r.Close(), l.Close()))
			})
		}
		t.Run(fmt.Sprint("ring from ", start), func(t *testing.T) {
			f, geometry := ringFile(t)
			first := newRun(2, 1)
			m := first.segment(t, geometry.SegmentID(1), true, ring.Base(1))
			first.batch(m, 3, 0)
			slot(t, f, geometry, 1, m.end())
			slot(t, f, geometry, 2, newRun(4, 4).segment(t, geometry.SegmentID(2), true, ring.Base(2)))
			l, err := Open(f.Name())
			testenv.Must(t, err)
			r := l.Uncommitted(1)
			expect(t, readOn(t, r), 1, 3)
			goOn(t, r, start, func(last *run, number int, used bool) {
				m := last.segment(t, geometry.SegmentID(uint64(number)), true, ring.Base(2))
				if m.packets += last.next - last.start; used {
					last.batch(m, 3, 0)
				}
				slot(t, f, geometry, uint64(number), m)
			})
			testenv.Check(t, errors.Join(r.Close(), l.Close()))
		})
	}
}

// goOn begins a run in segment 2, prepares segment 3, and reads: the reader had records up to 3.
func goOn(t *testing.T, r *Reader, start uint64, segment func(of *run, number int, used bool)) {
	t.Helper()
	last := newRun(6, start)
	segment(last, 2, true)
	segment(last, 3, false)
	all := readOn(t, r)
	expectPositions(t, all, start, start+2)
	if len(all.gaps) > 0 || len(all.cuts) > 1 || (len(all.cuts) == 0) != (start == 4) || start < 4 && *all.cuts[0] != (Cut{From: start, Given: 3}) {
		t.Errorf("it tells %v %v", all.gaps, all.cuts)
	}
	segment(last, 3, true)
	expect(t, readOn(t, r), start+3, start+5)
}

// TestLateInNextRun: a reader goes on to a run that writes its batches in any order. What is not there yet is late and
// not lost, although the earlier run has ended, and though the reader learned of the later one only when it looked for
// the reason why there is no more.
func TestLateInNextRun(t *testing.T) {
	for start := uint64(2); start <= 6; start++ {
		for _, from := range []uint64{2, 6} { // the second one is not written when the reader begins
			for hidden := range 3 { // readings of the directory that do not have the run
				r := newRenamed(t)
				first := newRun(2, 1)
				m := first.file(t)
				first.batch(m, 5, 0)
				m.end().write(t, segmentPath(r.prefix, 1))
				reader := r.log.Uncommitted(from)
				r.expect(reader, from, 5)
				last := newRun(4, start)
				m = last.file(t)
				whole := *m
				last.batch(m, 6, 0)
				last.batch(m, 2, 0)
				whole.raw = append([]byte(nil), m.raw...)
				m.lose(0)
				m.write(t, segmentPath(r.prefix, 2))
				last.file(t).write(t, r.prepared(3))
				for range hidden {
					r.before = append(r.before, func(found []pcapng.Named) []pcapng.Named { return found[:1] })
				}
				next, cut := max(start, from), start < 6 && from < 6
				for range 4 {
					_, err := reader.Poll()
					if _, ok := errors.AsType[*Cut](err); ok && cut {
						next, cut = start, false
					} else if err != io.EOF {
						t.Fatalf("a run from %d on, a reader from %d on: %v", start, from, err)
					}
				}
				if cut {
					t.Fatalf("a run from %d on, a reader from %d on: nothing says that records are void", start, from)
				}
				whole.write(t, segmentPath(r.prefix, 2))
				r.expect(reader, next, start+7)
				testenv.Check(t, errors.Join(reader.Close(), r.log.Close()))
			}
		}
	}
}
