package journal

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestEpochs: the epochs of a log are those of its records. The manifest gives what was not read, and
// what it says of records that do not exist is ignored.
func TestEpochs(t *testing.T) {
	control := func(epoch uint32, at uint64) Record { return Record{Data: protocol.Data{Epoch: epoch, Position: at}} }
	record := func(epoch uint32, at uint64) Record {
		return Record{Data: protocol.Data{Epoch: epoch, Position: at, Session: 1}}
	}
	for _, c := range []struct {
		name     string
		manifest []Epoch
		records  []Record
		want     []Epoch
		last     uint64
	}{
		{"no group", nil, []Record{record(0, 1), record(0, 2)}, nil, 0},
		{"a plain log that became a group's", nil, []Record{record(0, 1), control(3, 2), record(3, 3)}, []Epoch{{3, 2}}, 3},
		{"all was read", []Epoch{{1, 1}}, []Record{control(1, 1), record(1, 2), control(4, 3)}, []Epoch{{1, 1}, {4, 3}}, 4},
		{"reading began in an epoch", []Epoch{{1, 1}, {2, 5}}, []Record{record(2, 8), record(2, 9), control(3, 10)}, []Epoch{{1, 1}, {2, 5}, {3, 10}}, 3},
		{"reading began in an epoch that the manifest lacks", []Epoch{{1, 1}}, []Record{record(2, 8), control(3, 9)}, []Epoch{{2, 8}, {3, 9}}, 3},
		{"a lost record began the epoch", []Epoch{{1, 1}}, []Record{record(1, 7), record(2, 9), record(2, 10)}, []Epoch{{2, 9}}, 2},
		{"the manifest has epochs that were cut off", []Epoch{{1, 1}, {2, 5}, {3, 9}}, []Record{record(1, 3), record(1, 4)}, []Epoch{{1, 1}}, 1},
		{"and another followed", []Epoch{{1, 1}, {2, 5}}, []Record{record(1, 3), record(1, 4), control(4, 5)}, []Epoch{{1, 1}, {4, 5}}, 4},
		{"the segments were removed", []Epoch{{1, 1}, {2, 5}}, nil, []Epoch{{1, 1}, {2, 5}}, 2},
	} {
		e := Epochs{Table: slices.Clone(c.manifest)}
		next := uint64(100)
		for i := range c.records {
			e.add(&c.records[i])
			next = c.records[i].Position + 1
		}
		e.end(next)
		if !slices.Equal(e.Table, c.want) || e.Last != c.last {
			t.Errorf("%s: %v, the last is %d; want %v, %d", c.name, e.Table, e.Last, c.want, c.last)
		}
	}
}

// TestCommitted: a reader of a group's log returns committed records only, and goes on when more are
// committed.
func TestCommitted(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "wal")
	r := newRun(2, 1)
	m := r.file(t)
	r.batch(m, 5, 0)
	m.write(t, segmentPath(path, 1))
	k := kept(t, dir, Manifest{Flags: FlagGroup, Oldest: 1, Newest: 1, Next: 1, Reserved: 1000, Committed: 3})
	l, err := Open(path)
	testenv.Must(t, err)
	defer l.Close()
	from := l.Reader(0)
	defer from.Close()
	if got := readOn(t, from); len(got.positions) != 3 || got.gaps != nil {
		t.Errorf("3 of 5 records are committed, and it returns %v %v", got.positions, got.gaps)
	}
	testenv.Must(t, k.Update(false, func(m *Manifest) { m.Committed = 5 }))
	if got := readOn(t, from); len(got.positions) != 2 || got.gaps != nil {
		t.Errorf("2 more are committed, and it returns %v %v", got.positions, got.gaps)
	}
	every := l.Uncommitted(4)
	defer every.Close()
	if got := readOn(t, every); len(got.positions) != 2 {
		t.Errorf("of all records from 4 on it returns %v", got.positions)
	}
}

// TestCutOffWhileRead: a reader that follows a group's log returns none of the records that the member cuts
// off, also when their positions are committed before the reader comes to them, and goes on behind them.
func TestCutOffWhileRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "wal")
	first := newRun(2, 1)
	m := first.file(t)
	first.batch(m, 5, 0)
	m.write(t, segmentPath(path, 1))
	k := kept(t, dir, Manifest{Flags: FlagGroup, Oldest: 1, Newest: 1, Next: 1, Reserved: 1000, Committed: 3, Runs: []Run{{Number: 2, Start: 1, Segment: 1}}})
	l, err := Open(path)
	testenv.Must(t, err)
	defer l.Close()
	from := l.Reader(0)
	defer from.Close()
	if got := readOn(t, from); !slices.Equal(got.positions, []uint64{1, 2, 3}) {
		t.Errorf("3 of 5 records are committed, and it returns %v", got.positions)
	}
	testenv.Must(t, k.Update(true, func(m *Manifest) { m.Expect(2, Run{Number: 4, Start: 4}) }))
	testenv.Must(t, k.Update(false, func(m *Manifest) { m.Committed = 5 }))
	if got := readOn(t, from); got.positions != nil || got.cuts != nil || got.gaps != nil {
		t.Errorf("the records are cut off, and it returns %v of the runs %v, %v %v", got.positions, got.runs, got.cuts, got.gaps)
	}
	next := newRun(4, 4)
	m = next.file(t)
	next.batch(m, 3, 0)
	m.write(t, segmentPath(path, 2))
	testenv.Must(t, k.Update(true, func(m *Manifest) { m.Begin(2, Run{Number: 4, Start: 4}) }))
	if got := readOn(t, from); !slices.Equal(got.positions, []uint64{4, 5}) || !slices.Equal(got.runs, []uint64{4, 4}) || got.cuts != nil || got.gaps != nil {
		t.Errorf("2 records of the next run are committed, and it returns %v of the runs %v, %v %v", got.positions, got.runs, got.cuts, got.gaps)
	}
}

// TestCutOff: records that a member cuts off stay void when the run that follows crashes before it has
// a segment, also when an earlier run is read again.
func TestCutOff(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "wal")
	first := newRun(2, 1)
	m := first.file(t)
	first.batch(m, 5, 0)
	first.batch(m, 5, m.here())
	m.end().write(t, segmentPath(path, 1))
	k := kept(t, dir, Manifest{Flags: FlagGroup, Oldest: 1, Newest: 1, Next: 11, Reserved: 1000, Committed: 3, Runs: []Run{{Number: 2, Start: 1, Segment: 1}}})
	end, err := TailBefore(path, 8)
	if err != nil || end.Next != 8 || len(end.Gaps) > 0 {
		t.Fatalf("before position 8 the log ends at %d, gaps %v, %v", end.Next, end.Gaps, err)
	}
	var told []uint64 // sequences of the sessions: those of records that are cut off do not count
	for s := range uint64(3) {
		told = append(told, end.Sessions.Last(1+s).Sequence)
	}
	if !slices.Equal(told, []uint64{6, 7, 5}) {
		t.Errorf("the sessions end at %v", told)
	}
	next := Run{Number: 4, Start: 8}
	testenv.Must(t, k.Update(true, func(m *Manifest) { m.Next = end.Next; m.Expect(2, next) }))
	again, err := Tail(path)
	if err != nil || again.Next != 8 || len(again.Gaps) > 0 {
		t.Errorf("after a crash the log ends at %d, gaps %v, %v", again.Next, again.Gaps, err)
	}
	l, err := Open(path)
	testenv.Must(t, err)
	defer l.Close()
	r := l.Uncommitted(0)
	defer r.Close()
	if got := readOn(t, r); len(got.positions) != 7 || got.gaps != nil {
		t.Errorf("a reader returns %v, gaps %v", got.positions, got.gaps)
	}
	testenv.Must(t, k.Update(true, func(m *Manifest) { m.Expect(2, Run{Number: 6, Start: 8}) }))
	if runs := k.Now().Runs; len(runs) != 2 || runs[1].Number != 6 {
		t.Errorf("runs without segments stay: %+v", runs)
	}
	second := newRun(6, 8)
	m = second.file(t)
	second.batch(m, 2, 0)
	m.write(t, segmentPath(path, 2))
	testenv.Must(t, k.Update(true, func(m *Manifest) { m.Begin(2, Run{Number: 6, Start: 8}) }))
	if end, err := Tail(path); err != nil || end.Next != 10 {
		t.Errorf("after two more records the log ends at %d, %v", end.Next, err)
	}
	if runs := k.Now().Runs; len(runs) != 2 {
		t.Errorf("runs: %+v", runs)
	}
}

// TestCutOffBeforeSegment: a log ends where it is cut off, also when enough bytes lie in a later segment before which
// nothing is missing, and when only a planned run, or a later one, says that it is void.
func TestCutOffBeforeSegment(t *testing.T) {
	for _, c := range []struct {
		name   string
		before uint64
		runs   []Run
		third  bool // the run that cuts has a segment
	}{
		{name: "now", before: 3},
		{name: "before a crash", before: never, runs: []Run{{Number: 4, Start: 3, Segment: 3}}},
		{name: "before other records", before: never, runs: []Run{{Number: 4, Start: 3, Segment: 3}}, third: true},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "wal")
		first := newRun(2, 1)
		one, two := first.file(t), first.file(t)
		first.batch(one, 5, 0)
		first.batch(two, 4, 0)
		first.batch(two, 1, two.here())
		one.end().write(t, segmentPath(path, 1))
		two.write(t, segmentPath(path, 2))
		m := Manifest{Flags: FlagGroup, Oldest: 1, Newest: 2, Next: 3, Reserved: 1000, Committed: 2, Runs: append([]Run{{Number: 2, Start: 1, Segment: 1}}, c.runs...)}
		want, least := uint64(3), int64(1)
		if c.third {
			next := newRun(4, 3)
			file := next.file(t)
			next.batch(file, 1, 0)
			file.write(t, segmentPath(path, 3))
			m.Newest, want, least = 3, 4, int64(len(file.raw))+1
		}
		kept(t, dir, m)
		l, err := Open(path)
		testenv.Must(t, err)
		end, err := l.tail(&m, least, c.before)
		if err != nil || end.Next != want || len(end.Gaps) > 0 {
			t.Errorf("%s: the log ends at %d and not %d, gaps %v, %v", c.name, end.Next, want, end.Gaps, err)
		}
		if a, b := end.Sessions.Last(2).Sequence, end.Sessions.Last(3).Sequence; a != 1 || b != 2 {
			t.Errorf("%s: the sessions of records that stay end at %d and %d", c.name, a, b)
		}
		testenv.Check(t, l.Close())
	}
}
