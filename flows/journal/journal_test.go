package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/ring"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// threeSegments writes records 1 to 18 of one run to three files, all complete.
func threeSegments(t tester, prefix string) {
	r := newRun(7, 1)
	for i := range 3 {
		m := r.file(t)
		r.batch(m, 3, 0)
		r.batch(m, 3, m.here())
		m.end().write(t, segmentPath(prefix, i+1))
	}
}

func TestNothingThere(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "wal")
	expect(t, readFrom(t, prefix, 0), 1, 0)
	if end := tail(t, prefix); end.Next != 1 || end.Sessions.Len() != 0 {
		t.Errorf("%+v", end)
	}
	if r := verify(t, prefix); r.Next != 1 || r.First != 0 || !r.Intact() {
		t.Errorf("%+v", r)
	}
	if _, err := Tail(filepath.Join(t.TempDir(), "no", "wal")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestReadsFiles(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "wal")
	threeSegments(t, prefix)
	for from := uint64(0); from <= 20; from++ {
		expect(t, readFrom(t, prefix, from), max(from, 1), max(19, from)-1)
	}
	end := tail(t, prefix)
	if end.Next != 19 || len(end.Gaps) != 0 || fmt.Sprint(end.Sessions.all()) != "map[1:{18 0} 2:{16 0} 3:{17 0}]" {
		t.Errorf("%+v", end)
	}
	r := verify(t, prefix)
	if r.Records != 18 || r.First != 1 || r.Next != 19 || !r.Intact() || len(r.Segments) != 3 {
		t.Fatalf("%+v", r)
	}
	for i, s := range r.Segments {
		first := uint64(6*i) + 1
		if s.First != first || s.Last != first+5 || s.Records != 6 || s.Batches != 3 || s.Damaged+s.Holes+s.Void != 0 || s.Run != 7 || s.Start != 1 {
			t.Errorf("segment %d: %+v", i, s)
		}
	}
	expect(t, readFrom(t, segmentPath(prefix, 2), 0), 7, 12)
}

// TestTornEnds: after a crash the log ends before the first record that is lost or torn. The first
// six records are known to be durable.
func TestTornEnds(t *testing.T) {
	for name, c := range map[string]struct {
		tear func(a, b *made)
		next uint64
	}{
		"all there":          {func(a, b *made) {}, 19},
		"last one lost":      {func(a, b *made) { b.lose(1) }, 16},
		"one in front lost":  {func(a, b *made) { b.lose(0) }, 13},
		"last one torn":      {func(a, b *made) { b.poke(1) }, 16},
		"one in front torn":  {func(a, b *made) { b.poke(0) }, 13},
		"end of first lost":  {func(a, b *made) { a.lose(3) }, 10},
		"end of first torn":  {func(a, b *made) { a.poke(3) }, 10},
		"behind the durable": {func(a, b *made) { a.lose(2) }, 7},
		"several":            {func(a, b *made) { a.poke(3); b.lose(0) }, 10},
		"file cut":           {func(a, b *made) { b.raw = b.raw[:b.batches[1].offset+700] }, 16},
		"only a head":        {func(a, b *made) { b.raw = b.raw[:b.batches[0].offset] }, 13},
	} {
		for _, number := range []uint64{2, 3} { // both layouts
			prefix := filepath.Join(t.TempDir(), "wal")
			paths := []string{segmentPath(prefix, 1), segmentPath(prefix, 2)}
			r := newVerifiedRun(number, 1)
			a := r.file(t)
			r.batch(a, 3, 0)
			r.batch(a, 3, 0)
			r.batch(a, 3, a.here())
			r.batch(a, 3, uint64(a.batches[1].offset+a.batches[1].length))
			b := r.file(t)
			r.batch(b, 3, 0)
			r.batch(b, 3, 0)
			c.tear(a, b)
			a.write(t, paths[0])
			b.write(t, paths[1])
			goesOn(t, name, prefix, paths, c.next)
		}
	}
}

// goesOn checks that a log ends before a position: after the crash, after recovery, and when a
// later run has continued it.
func goesOn(t *testing.T, name, prefix string, paths []string, next uint64) {
	t.Helper()
	if end := tail(t, prefix); end.Next != next || len(end.Gaps) != 0 {
		t.Errorf("%s: the log ends at %d, want %d; %v", name, end.Next, next, end.Gaps)
		return
	}
	expect(t, readFrom(t, prefix, 0), 1, next-1)
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.Size() > 0 {
			mend(t, path)
		}
	}
	expect(t, readFrom(t, prefix, 0), 1, next-1)
	r := newVerifiedRun(9, next)
	m := r.file(t)
	r.batch(m, 5, 0)
	m.write(t, segmentPath(prefix, 4))
	all := readFrom(t, prefix, 0)
	expect(t, all, 1, next+4)
	if last := len(all.runs) - 6; last >= 0 && (all.runs[last] == 9 || all.runs[last+1] != 9) {
		t.Errorf("%s: runs %v", name, all.runs)
	}
	if report := verify(t, prefix); !report.Intact() || report.Next != next+5 || report.Records != next+4 {
		t.Errorf("%s: %+v", name, report)
	}
	if end := tail(t, prefix); end.Next != next+5 {
		t.Errorf("%s: then it ends at %d", name, end.Next)
	}
	for from := uint64(1); from < next+6; from++ {
		expect(t, readFrom(t, prefix, from), from, max(next+4, from-1))
	}
}

// TestLosses: if the disk loses durable records, readers report a gap, and the log does not end
// there.
func TestLosses(t *testing.T) {
	for name, c := range map[string]struct {
		harm     func(m *made)
		position uint64
		records  uint64
		err      error
	}{
		"a bad payload":    {func(m *made) { m.poke(1) }, 4, 1, protocol.BadPayload},
		"a batch is gone":  {func(m *made) { m.lose(1) }, 4, 3, ErrMissing},
		"a bad header":     {func(m *made) { m.raw[m.batches[1].offset+pcapng.MinMarkLen+pcapng.PacketHeaderLen+9] ^= 1 }, 4, 1, protocol.BadHeader},
		"a broken block":   {func(m *made) { m.raw[m.batches[1].offset+pcapng.MinMarkLen+4] ^= 1 }, 4, 3, ErrMissing},
		"the first record": {func(m *made) { m.poke(0) }, 1, 1, protocol.BadPayload},
	} {
		prefix := filepath.Join(t.TempDir(), "wal")
		r := newRun(2, 1)
		m := r.file(t)
		for range 4 {
			r.batch(m, 3, m.here())
		}
		c.harm(m)
		m.write(t, segmentPath(prefix, 1))
		for _, later := range []bool{false, true} {
			if later { // the head of the next run also shows that they were durable
				next := newRun(5, 13)
				next.file(t).write(t, segmentPath(prefix, 2))
			}
			all := readFrom(t, prefix, 0)
			if len(all.gaps) != 1 || all.gaps[0].Position != c.position || all.gaps[0].Records != c.records || !errors.Is(all.gaps[0], c.err) {
				t.Errorf("%s: %v", name, all.gaps)
			}
			if uint64(len(all.positions)) != 12-c.records || all.positions[len(all.positions)-1] != 12 {
				t.Errorf("%s: %v", name, all.positions)
			}
			if end := tail(t, prefix); end.Next != 13 || len(end.Gaps) != 1 {
				t.Errorf("%s: %+v", name, end)
			}
			if report := verify(t, prefix); report.Lost != c.records || report.Intact() || report.Records != 12-c.records {
				t.Errorf("%s: %+v", name, report)
			}
			expect(t, readFrom(t, prefix, c.position+c.records), c.position+c.records, 12)
		}
	}
}

// TestLostBetweenRuns: a later run has continued after records that the disk has lost since.
// Readers report a gap between the runs.
func TestLostBetweenRuns(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "wal")
	r := newRun(2, 1)
	m := r.file(t)
	r.batch(m, 3, 0)
	r.batch(m, 3, 0)
	m.raw = m.raw[:m.batches[1].offset]
	m.write(t, segmentPath(prefix, 1))
	r = newRun(3, 7)
	m = r.file(t)
	r.batch(m, 2, 0)
	m.write(t, segmentPath(prefix, 2))
	all := readFrom(t, prefix, 0)
	if len(all.gaps) != 1 || all.gaps[0].Position != 4 || all.gaps[0].Records != 3 || len(all.positions) != 5 || all.positions[4] != 8 {
		t.Errorf("%v, %v", all.positions, all.gaps)
	}
	if end := tail(t, prefix); end.Next != 9 {
		t.Errorf("%+v", end)
	}
}

// TestRemovedSegments: readers report a gap for a removed segment between others, and begin after
// removed segments at the front.
func TestRemovedSegments(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "wal")
	threeSegments(t, prefix)
	testenv.Must(t, os.Remove(segmentPath(prefix, 2)))
	all := readFrom(t, prefix, 0)
	if len(all.gaps) != 1 || all.gaps[0].Position != 7 || all.gaps[0].Records != 6 || !errors.Is(all.gaps[0], errRemoved) || len(all.positions) != 12 {
		t.Errorf("%v, %v", all.positions, all.gaps)
	}
	if end := tail(t, prefix); end.Next != 19 {
		t.Errorf("%+v", end)
	}
	testenv.Must(t, os.Remove(segmentPath(prefix, 1)))
	expect(t, readFrom(t, prefix, 0), 13, 18)
	all = readFrom(t, prefix, 5)
	expectPositions(t, all, 13, 18)
	if len(all.gaps) != 1 || all.gaps[0].Position != 5 || all.gaps[0].Records != 8 || !errors.Is(all.gaps[0], errRemoved) {
		t.Errorf("%v", all.gaps)
	}
}

// TestEmptyOldest: a segment without records is all that is left of a run. The log continues at the
// start of the next run.
func TestEmptyOldest(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "wal")
	newRun(2, 1).file(t).end().write(t, segmentPath(prefix, 4))
	expect(t, readFrom(t, prefix, 0), 1, 0)
	r := newRun(3, 50)
	m := r.file(t)
	m.write(t, segmentPath(prefix, 5))
	expect(t, readFrom(t, prefix, 0), 1, 0)
	if end := tail(t, prefix); end.Next != 50 {
		t.Errorf("%+v", end)
	}
	r.batch(m, 3, 0)
	m.write(t, segmentPath(prefix, 5))
	expect(t, readFrom(t, prefix, 0), 50, 52)
}

// TestPrepared: readers find the records of a segment that still has the name of a prepared one.
func TestPrepared(t *testing.T) {
	dir := t.TempDir()
	prefix := filepath.Join(dir, "wal")
	r := newRun(2, 1)
	m := r.file(t)
	r.batch(m, 3, 0)
	m.end().write(t, segmentPath(prefix, 1))
	m = r.file(t)
	r.batch(m, 3, 0)
	m.write(t, filepath.Join(dir, ".wal-000002.next"))
	r.file(t).write(t, filepath.Join(dir, ".wal-000003.next"))
	testenv.Must(t, os.WriteFile(segmentPath(prefix+"-x", 4), []byte("another's"), 0o600))
	testenv.Must(t, os.Symlink(segmentPath(prefix, 1), segmentPath(prefix, 5)))
	expect(t, readFrom(t, prefix, 0), 1, 6)
}

func TestOthersSegments(t *testing.T) {
	for name, f := range map[string]pcapng.Interface{
		"a capture":     {Name: "eth1", LinkType: pcapng.LinkTypeEthernet},
		"no position":   {Name: "wal", LinkType: linkType, Description: "log"},
		"position zero": Source("wal", 0, 7, 64),
		"more text":     {Name: "wal", LinkType: linkType, Description: Source("wal", 3, 7, 64).Description + "."},
	} {
		prefix := filepath.Join(t.TempDir(), "wal")
		head, err := pcapng.AppendSegmentHead(nil, pcapng.Section{}, []pcapng.Interface{f}, pcapng.Segment{Align: align})
		testenv.Must(t, err)
		(&made{raw: head}).write(t, segmentPath(prefix, 1))
		if _, err := Tail(prefix); !errors.Is(err, errNotLog) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := Verify(prefix); !errors.Is(err, errNotLog) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRing(t *testing.T) {
	f, geometry := ringFile(t)
	if end := tail(t, f.Name()); end.Next != 1 {
		t.Fatalf("%+v", end)
	}
	r := newRun(7, 1)
	for g := uint64(1); g <= 6; g++ {
		m := r.segment(t, geometry.SegmentID(g), true, ring.Base(1))
		m.packets += r.next - 1
		r.batch(m, 3, 0)
		r.batch(m, 3, m.here())
		if g < 6 {
			m.end()
		}
		slot(t, f, geometry, g, m)
	}
	oldest := 6*(6-geometry.Slots) + 1
	expect(t, readFrom(t, f.Name(), 0), oldest, 36)
	expect(t, readFrom(t, f.Name(), 30), 30, 36)
	if end := tail(t, f.Name()); end.Next != 37 {
		t.Errorf("%+v", end)
	}
	if all := readFrom(t, f.Name(), 1); len(all.gaps) != 1 || all.gaps[0].Records != oldest-1 || !errors.Is(all.gaps[0], errRemoved) {
		t.Errorf("%v", all.gaps)
	}
	if report := verify(t, f.Name()); !report.Intact() || len(report.Segments) != int(geometry.Slots) {
		t.Errorf("%+v", report)
	}
}

// TestRingTornAtOnce: a crash loses the very first batch of a ring, but not later ones. The log is
// empty and begins again at position 1.
func TestRingTornAtOnce(t *testing.T) {
	f, geometry := ringFile(t)
	r := newRun(7, 1)
	m := r.segment(t, geometry.SegmentID(1), true, ring.Base(1))
	r.batch(m, 3, 0)
	r.batch(m, 3, 0)
	m.lose(0)
	slot(t, f, geometry, 1, m)
	expect(t, readFrom(t, f.Name(), 0), 1, 0)
	if end := tail(t, f.Name()); end.Next != 1 || end.Sessions.Len() != 0 {
		t.Fatalf("%+v", end)
	}
	r = newRun(9, 1)
	m = r.segment(t, geometry.SegmentID(2), true, ring.Base(2))
	r.batch(m, 4, 0)
	slot(t, f, geometry, 2, m)
	expect(t, readFrom(t, f.Name(), 0), 1, 4)
	expect(t, readFrom(t, f.Name(), 3), 3, 4)
}

// TestRingOvertakes: if the writer of a ring overtakes a reader, the reader reports a gap and
// continues.
func TestRingOvertakes(t *testing.T) {
	f, geometry := ringFile(t)
	r := newRun(7, 1)
	begin := func(g uint64) {
		m := r.segment(t, geometry.SegmentID(g), true, ring.Base(1))
		m.packets += r.next - 1
		for range 2 {
			r.batch(m, 3, 0)
		}
		slot(t, f, geometry, g, m.end())
	}
	begin(1)
	begin(2)
	l, err := Open(f.Name())
	testenv.Must(t, err)
	reader := l.Reader(0)
	for range 2 {
		if _, err := reader.Next(); err != nil {
			t.Fatal(err)
		}
	}
	for g := uint64(3); g <= 2+geometry.Slots; g++ {
		begin(g)
	}
	all := readOn(t, reader)
	if len(all.gaps) != 1 || all.gaps[0].Position != 4 || !errors.Is(all.gaps[0], errRemoved) {
		t.Errorf("%v, %v", all.positions, all.gaps)
	}
	if last := all.positions[len(all.positions)-1]; last != r.next-1 {
		t.Errorf("it ends at %d", last)
	}
	testenv.Check(t, errors.Join(reader.Close(), l.Close()))
}

// TestCut: a crash removes records that a reader has returned. The reader returns a Cut, and then
// the records that replaced them.
func TestCut(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "wal")
	r := newRun(2, 1)
	m := r.file(t)
	r.batch(m, 3, 0)
	r.batch(m, 3, 0)
	m.write(t, segmentPath(prefix, 1))
	l, err := Open(prefix)
	testenv.Must(t, err)
	reader := l.Reader(0)
	expect(t, readOn(t, reader), 1, 6)
	m.lose(1)
	m.write(t, segmentPath(prefix, 1))
	if end := tail(t, prefix); end.Next != 4 {
		t.Fatalf("%+v", end)
	}
	r = newRun(5, 4)
	m = r.file(t)
	r.batch(m, 2, 0)
	m.write(t, segmentPath(prefix, 2))
	all := readOn(t, reader)
	expectPositions(t, all, 4, 5)
	if len(all.cuts) != 1 || all.cuts[0].From != 4 || all.cuts[0].Given != 6 {
		t.Errorf("%v", all.cuts)
	}
	testenv.Check(t, errors.Join(reader.Close(), l.Close()))
}

func TestManySessions(t *testing.T) {
	var s Sessions
	for i := range uint64(5 * remembered) {
		s.Note(i+1, Mark{1, 9})
		s.Note(i+1, Mark{2, 9})
		s.Note(7, Mark{i + 1, 9})
	}
	all := s.all()
	if len(all) < remembered || len(all) > 2*remembered {
		t.Errorf("%d sessions", len(all))
	}
	for i := range uint64(remembered - 1) {
		if m := s.Last(5*remembered - i); m != (Mark{2, 9}) {
			t.Fatalf("session %d: %+v", 5*remembered-i, m)
		}
	}
	if all[7].Sequence != 5*remembered {
		t.Errorf("session 7: %+v", all[7])
	}
}
