package journal

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"
)

// model is what a log must contain after several runs, each of which ends in a crash.
type model struct {
	t      *rapid.T
	prefix string
	number int
	runs   []uint64 // by record, from position 1 on: the run that wrote it
}

// crashingRun writes some segments and crashes. Each batch after the last durable one is present,
// lost or torn.
func (m *model) crashingRun(number uint64, clean bool) (durable uint64) {
	r := newVerifiedRun(number, uint64(len(m.runs))+1)
	durable = r.next - 1
	holding := true // all earlier batches are intact
	m.number += rapid.IntRange(0, 1).Draw(m.t, "one prepared and removed")
	for range rapid.IntRange(0, 3).Draw(m.t, "segments") {
		m.number++
		s := r.file(m.t)
		whole := rapid.Bool().Draw(m.t, "completed") && holding
		from := uint64(0)
		var harm []int
		for i := range rapid.IntRange(0, 4).Draw(m.t, "batches") {
			first := r.next
			r.batch(s, rapid.IntRange(1, 4).Draw(m.t, "records"), from)
			what := rapid.SampledFrom([]string{"flushed", "there", "lost", "torn"}).Draw(m.t, "batch")
			if clean || whole || holding && what == "flushed" {
				from, durable = s.here(), r.next-1
				what = "flushed"
			}
			holding = holding && what != "lost" && what != "torn"
			if what == "lost" || what == "torn" {
				harm = append(harm, i)
			}
			m.note(first, r.next, holding, what, number)
		}
		for _, i := range harm {
			if rapid.Bool().Draw(m.t, "wiped") {
				s.lose(i)
			} else {
				m.tear(s, i)
			}
		}
		if clean || whole {
			s.end()
		} else if rapid.Bool().Draw(m.t, "prepared space") {
			s.raw = append(s.raw, make([]byte, 8*align)...)
		}
		s.write(m.t, segmentPath(m.prefix, m.number))
	}
	return durable
}

// tear damages the first record of a batch, so that the log ends before this batch.
func (m *model) tear(s *made, batch int) { s.poke(batch) }

// note adds the records of a batch to the model if this batch and all earlier ones are intact.
func (m *model) note(from, to uint64, holding bool, what string, run uint64) {
	for ; from < to && holding; from++ {
		m.runs = append(m.runs, run)
	}
}

// check compares what readers find with the model.
func (m *model) check(durable uint64) {
	t := m.t
	end := tail(t, m.prefix)
	if end.Next != uint64(len(m.runs))+1 || len(end.Gaps) > 0 || end.Next <= durable {
		t.Fatalf("the log ends at %d, want %d; durable up to %d; %v", end.Next, len(m.runs)+1, durable, end.Gaps)
	}
	m.checkLate(end)
	all := readFrom(t, m.prefix, 0)
	expect(t, all, 1, uint64(len(m.runs)))
	for i, run := range all.runs {
		if run != m.runs[i] {
			t.Fatalf("record %d is run %d's, want %d's", i+1, run, m.runs[i])
		}
	}
	for session, mark := range end.Sessions.all() {
		last := mark.Sequence
		if want := lastOf(session, uint64(len(m.runs))); last != want {
			t.Fatalf("session %d ends at %d, want %d", session, last, want)
		}
	}
	if from := uint64(rapid.IntRange(1, len(m.runs)+1).Draw(t, "from")); from > 0 {
		expect(t, readFrom(t, m.prefix, from), from, uint64(len(m.runs)))
	}
}

// checkLate finds the end of the log again, and reads as few segments as possible for it.
func (m *model) checkLate(end End) {
	l, err := Open(m.prefix)
	if err != nil {
		m.t.Fatalf("%v", err)
	}
	defer l.Close()
	late, err := l.tail(nil, 1, never)
	if err != nil || late.Next != end.Next || len(late.Gaps) > 0 {
		m.t.Fatalf("the newest segments end at %d, all at %d: %v, %v", late.Next, end.Next, late.Gaps, err)
	}
	for session, last := range late.Sessions.all() {
		if last != end.Sessions.Last(session) {
			m.t.Fatalf("session %d ends at %+v, not %+v", session, last, end.Sessions.Last(session))
		}
	}
}

// lastOf returns the last position of a session's records in a log of n records; see message.
func lastOf(session, n uint64) uint64 {
	for n > 0 && 1+n%3 != session {
		n--
	}
	return n
}

// TestCrashes: after any number of crashes and restarts, a log equals the model. It has every
// durable record, no torn record and no record twice.
func TestCrashes(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		here, err := os.MkdirTemp(dir, "")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(here)
		m := &model{t: t, prefix: filepath.Join(here, "wal")}
		for i := range rapid.IntRange(1, 5).Draw(t, "runs") {
			durable := m.crashingRun(uint64(i)+1, rapid.IntRange(0, 3).Draw(t, "clean") == 0)
			m.check(durable)
			if rapid.Bool().Draw(t, "mended") {
				m.mend()
				m.check(durable)
			}
		}
		report := verify(t, m.prefix)
		if !report.Intact() || report.Records != uint64(len(m.runs)) || report.Next != uint64(len(m.runs))+1 {
			t.Fatalf("%+v", report)
		}
		counted := uint64(0)
		for _, s := range report.Segments {
			counted += s.Records
		}
		if counted != report.Records {
			t.Fatalf("segments have %d records, the log %d", counted, report.Records)
		}
	})
}

// mend recovers all segments, as the flow does at its next start.
func (m *model) mend() {
	for n := 1; n <= m.number; n++ {
		path := segmentPath(m.prefix, n)
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			continue
		}
		mend(m.t, path)
	}
}
