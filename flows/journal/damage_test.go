package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/ring"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
)

// patient is a log that a test damages. Its disk has records 1 to 60, all acknowledged as durable.
type patient struct {
	path  string
	files map[string][]byte // contents before any damage
	spots []spot
}

// spot is a part of a file in which the test damages bytes.
type spot struct {
	file     string
	from, to int
	all      bool // the long form damages each byte; otherwise a sample
}

// acknowledged is the number of records in a patient.
const acknowledged = 60

// newPatient makes a log in files with three segments and two runs. The last run ended in order,
// or, if killed is set, it was killed while it wrote the last segment.
func newPatient(t *testing.T, killed bool) *patient {
	t.Helper()
	p := &patient{path: filepath.Join(t.TempDir(), "wal"), files: map[string][]byte{}}
	m := Manifest{Oldest: 1, Next: 1, Reserved: 1}
	for i, r := range []*run{newRun(1, 1), newRun(2, 21), nil} {
		if r == nil {
			r = newRun(2, 21)
			r.next = 41
		}
		s := r.file(t)
		r.batch(s, 10, 0)
		r.batch(s, 10, s.here())
		if !killed || i < 2 {
			s.end()
		}
		path := segmentPath(p.path, i+1)
		s.write(t, path)
		m.Begin(uint64(i+1), Run{Number: r.number, Start: r.start})
		p.spots = append(p.spots, s.spots(path, 0)...)
	}
	m.Next, m.Reserved = acknowledged+1, acknowledged+1
	if killed {
		m.Reserved += 1 << 16
	}
	if killed { // the flow had already prepared the next segment
		ahead := newRun(2, 21).file(t)
		path := filepath.Join(filepath.Dir(p.path), ".wal-000004.next")
		ahead.write(t, path)
		p.spots = append(p.spots, spot{path, 0, len(ahead.raw), true})
	}
	k := kept(t, filepath.Dir(p.path), m)
	for range 2 {
		testenv.Must(t, k.Update(true, func(*Manifest) {}))
	}
	for _, at := range copies {
		p.spots = append(p.spots, spot{p.path + ManifestSuffix, int(at), int(at) + manifestLen, true})
	}
	p.read(t)
	return p
}

// newRingPatient makes such a log on a ring.
func newRingPatient(t *testing.T) *patient {
	t.Helper()
	f, on := ringFile(t)
	p := &patient{path: f.Name(), files: map[string][]byte{}}
	m, packets := Manifest{Oldest: 1, Next: 1, Reserved: 1}, uint64(0)
	r := newRun(2, 1)
	for g := uint64(1); g <= 3; g++ {
		s := r.segment(t, on.SegmentID(g), true, ring.Base(1))
		s.packets += packets
		r.batch(s, 10, 0)
		r.batch(s, 10, s.here())
		packets += 20
		slot(t, f, on, g, s.end())
		m.Begin(g, Run{Number: 2, Start: 1})
		p.spots = append(p.spots, s.spots(p.path, int(on.Offset(g)))...)
	}
	m.Next, m.Reserved = acknowledged+1, acknowledged+1
	if _, err := KeepRing(f, m, true); err != nil {
		t.Fatal(err)
	}
	for _, at := range copies {
		p.spots = append(p.spots, spot{p.path, ring.ManifestOffset + int(at), ring.ManifestOffset + int(at) + manifestLen, true})
	}
	p.spots = append(p.spots, spot{p.path, 0, ring.SuperblockLen, true})
	p.read(t)
	return p
}

// spots returns the parts of a segment at offset base: the head, the last batch's mark, the end,
// and the bytes between them.
func (m *made) spots(file string, base int) []spot {
	last := m.batches[len(m.batches)-1]
	return []spot{
		{file, base, base + m.batches[0].offset, true},
		{file, base + m.batches[0].offset, base + last.offset, false},
		{file, base + last.offset, base + last.offset + 88, true},
		{file, base + last.offset + 88, base + last.offset + last.length, false},
		{file, base + last.offset + last.length, base + len(m.raw), true},
	}
}

func (p *patient) read(t *testing.T) {
	t.Helper()
	for _, s := range p.spots {
		if p.files[s.file] != nil {
			continue
		}
		b, err := os.ReadFile(s.file)
		testenv.Must(t, err)
		p.files[s.file] = b
	}
}

// heal restores all files and removes any others.
func (p *patient) heal(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(p.path))
	testenv.Must(t, err)
	for _, e := range entries {
		if path := filepath.Join(filepath.Dir(p.path), e.Name()); p.files[path] == nil {
			_ = os.Remove(path)
		}
	}
	for path, b := range p.files {
		if now, err := os.ReadFile(path); err == nil && bytes.Equal(now, b) {
			continue
		}
		testenv.Must(t, os.WriteFile(path, b, 0o600))
	}
}

// examine does what an operator does with a damaged log. It verifies the log and starts the flow;
// if the start is refused, it repairs the log first. No position may be used twice, and no record
// may be missing without a report.
func (p *patient) examine(t *testing.T, what string) (refused bool) {
	t.Helper()
	report, verr := Verify(p.path)
	lost := report.Lost
	end, err := Tail(p.path)
	if _, damaged := errors.AsType[*DamagedError](err); damaged {
		refused = true
		if verr == nil && report.Intact() {
			t.Fatalf("%s: it is refused (%v), and verified to be intact", what, err)
		}
		r, err := PlanRepair(p.path)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if err := errors.Join(r.Apply(), r.Close()); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		lost = r.Lost
		if end, err = Tail(p.path); err != nil {
			t.Fatalf("%s: repaired, and refused: %v", what, err)
		}
		if report, verr = Verify(p.path); verr != nil || len(report.Damage) > 0 {
			t.Fatalf("%s: repaired, and verified: %+v, %v", what, report, verr)
		}
	} else if err != nil {
		if verr == nil {
			t.Fatalf("%s: it does not start (%v), and is verified", what, err)
		}
		return true // the error is reported, and nothing was changed
	}
	if end.Next <= acknowledged {
		t.Fatalf("%s: position %d is given twice", what, end.Next)
	}
	if report.Records < acknowledged && !refused && report.Intact() || report.Records+lost < acknowledged || report.Next != end.Next {
		t.Fatalf("%s: nobody says what is lost: %+v; %+v", what, report, end)
	}
	p.checkRecords(t, what, report.Records)
	return refused
}

// checkRecords reads the log and checks that each record is as it was written.
func (p *patient) checkRecords(t *testing.T, what string, want uint64) {
	t.Helper()
	l, err := Open(p.path)
	testenv.Must(t, err)
	defer l.Close()
	r := l.Reader(0)
	defer r.Close()
	got := uint64(0)
	for {
		rec, err := r.Next()
		if _, gap := errors.AsType[*Gap](err); gap {
			continue
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got++; !bytes.Equal(rec.Payload, payload(rec.Position, rec.Stamp)) {
			t.Fatalf("%s: record %d is another", what, rec.Position)
		}
	}
	if got != want {
		t.Fatalf("%s: %d records are read, and %d were verified", what, got, want)
	}
}

// TestDamage: for any damaged byte of a log's files, verify and the next start report the damage,
// or no record is lost. UNIFIEDD_DAMAGE=1 tries each byte of heads, manifests, marks and ends, and
// a larger sample of the other bytes.
func TestDamage(t *testing.T) {
	long, seed := setting.Number(t, "UNIFIEDD_DAMAGE", 0) != 0, setting.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	for name, make := range map[string]func() *patient{
		"ended": func() *patient { return newPatient(t, false) }, "killed": func() *patient { return newPatient(t, true) },
		"ring": func() *patient { return newRingPatient(t) },
	} {
		p := make()
		tried, refused := 0, 0
		for _, s := range p.spots {
			for _, at := range s.places(random, long) {
				change := byte(1 + random.IntN(255))
				poke(t, s.file, at, change)
				tried++
				if p.examine(t, fmt.Sprintf("%s: byte %d of %s, changed by %#x, seed %d", name, at, filepath.Base(s.file), change, seed)) {
					refused++
					p.heal(t)
					continue
				}
				poke(t, s.file, at, change) // restore it: nothing else changed
			}
		}
		t.Logf("%s: %d bytes were damaged, and %d times the log was refused until it was repaired", name, tried, refused)
		if refused == 0 {
			t.Errorf("%s: nothing was ever refused", name)
		}
	}
}

// places returns the offsets to damage in a spot: all of them, or a sample.
func (s *spot) places(random *rand.Rand, long bool) (all []int) {
	n := 6
	if testing.Short() {
		n = 2
	}
	switch {
	case long && s.all:
		for at := s.from; at < s.to; at++ {
			all = append(all, at)
		}
		return all
	case long:
		n = 200
	}
	for range min(n, s.to-s.from) {
		all = append(all, s.from+random.IntN(s.to-s.from))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// poke changes a byte of a file.
func poke(t *testing.T, path string, at int, change byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	testenv.Must(t, err)
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], int64(at)); err != nil {
		t.Fatal(err)
	}
	b[0] ^= change
	if _, err := f.WriteAt(b[:], int64(at)); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedFiles: for a missing, empty, cut or overwritten file, verify and the next start report
// the damage, or no record is lost.
func TestDamagedFiles(t *testing.T) {
	for _, killed := range []bool{false, true} {
		p := newPatient(t, killed)
		for path := range p.files {
			for name, harm := range map[string]func() error{
				"missing": func() error { return os.Remove(path) },
				"empty":   func() error { return os.Truncate(path, 0) },
				"cut":     func() error { return os.Truncate(path, 700) },
				"halved":  func() error { return os.Truncate(path, int64(len(p.files[path])/2&^511)) },
				"zeros":   func() error { return os.WriteFile(path, make([]byte, len(p.files[path])), 0o600) },
				"another": func() error { return os.WriteFile(path, []byte(strings.Repeat("another file ", 1000)), 0o600) },
			} {
				testenv.Must(t, harm())
				p.examine(t, fmt.Sprintf("%s is %s, killed: %v", filepath.Base(path), name, killed))
				p.heal(t)
			}
		}
	}
}
