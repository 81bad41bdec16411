package journal

import (
	"errors"
	"os"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// repaired repairs a log. It checks that planning changes nothing.
func repaired(t *testing.T, path string) *Repair {
	t.Helper()
	before, _ := Verify(path)
	r, err := PlanRepair(path)
	testenv.Must(t, err)
	defer r.Close()
	if after, err := Verify(path); err != nil || len(after.Damage) != len(before.Damage) || after.Next != before.Next {
		t.Fatalf("the plan changed the log: %+v, %v", after, err)
	}
	testenv.Must(t, r.Apply())
	again, err := PlanRepair(path)
	if err != nil || again.Needed() {
		t.Fatalf("repaired, and there is more: %+v, %v", again, err)
	}
	testenv.Check(t, again.Close())
	return r
}

// TestRepairHead: repair recovers every record of a segment whose head has a damaged byte, with a
// manifest and without one.
func TestRepairHead(t *testing.T) {
	for _, manifest := range []bool{true, false} {
		prefix, b := withManifest(t)
		none := func() {
			if !manifest {
				_ = os.Remove(prefix + ManifestSuffix)
			}
		}
		none()
		for at := 0; at < b.batches[0].offset; at += 11 {
			b.raw[at] ^= 1 << (at % 8)
			b.write(t, segmentPath(prefix, 2))
			b.raw[at] ^= 1 << (at % 8)
			if _, err := Tail(prefix); err == nil {
				continue
			}
			if _, damaged := errors.AsType[*DamagedError](func() error { _, err := Tail(prefix); return err }()); !damaged {
				continue // it looks like a capture; without a manifest nothing shows otherwise
			}
			r := repaired(t, prefix)
			if len(r.Heads) != 1 || r.Lost != 0 || r.Next != 41 {
				t.Fatalf("byte %d: %+v", at, r)
			}
			expect(t, readFrom(t, prefix, 0), 1, 40)
			if end := tail(t, prefix); end.Next != 41 || end.Lost != 0 {
				t.Fatalf("byte %d: %+v", at, end)
			}
			none()
		}
	}
}

// TestRepairGivesUp: if a segment cannot be recovered, the log continues after every position that
// the segment may have had.
func TestRepairGivesUp(t *testing.T) {
	for name, c := range map[string]struct {
		harm       func(p string) error
		least      uint64 // position at which the log continues
		lost       uint64
		unsure     bool
		setAside   string
		lastRecord uint64
	}{
		"newest is gone":    {func(p string) error { return os.Remove(segmentPath(p, 2)) }, 41, 20, false, "", 20},
		"newest is empty":   {func(p string) error { return os.Truncate(segmentPath(p, 2), 0) }, 41, 20, false, segmentPath("", 2), 20},
		"oldest is gone":    {func(p string) error { return os.Remove(segmentPath(p, 1)) }, 41, 20, false, "", 40},
		"manifest is empty": {func(p string) error { return os.Truncate(p+ManifestSuffix, 0) }, 41, 0, true, "", 40},
		"older release's newest is empty": {func(p string) error {
			return errors.Join(os.Remove(p+ManifestSuffix), os.Truncate(segmentPath(p, 2), 0))
		}, 41, 1 << 19, true, segmentPath("", 2), 20},
	} {
		prefix, _ := withManifest(t)
		testenv.Must(t, c.harm(prefix))
		r := repaired(t, prefix)
		if r.Next < c.least || c.lost < 1000 && (r.Next != c.least || r.Lost != c.lost) || r.Lost < c.lost || r.Unsure != c.unsure {
			t.Errorf("%s: %+v", name, r)
		}
		if _, err := os.Stat(prefix + c.setAside + DamagedSuffix); c.setAside != "" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if end := tail(t, prefix); end.Next != r.Next {
			t.Errorf("%s: it goes on at %d, not %d", name, end.Next, r.Next)
		}
		report := verify(t, prefix)
		if report.Next != r.Next || report.Lost > r.Lost || len(report.Damage) > 0 {
			t.Errorf("%s: verified: %+v", name, report)
		}
	}
}

// TestRepairRing: repair recovers every record of a ring's segment whose head has a damaged byte.
func TestRepairRing(t *testing.T) {
	for _, manifest := range []bool{true, false} {
		for at := 0; at < 512; at += 61 {
			f, r := ringFile(t)
			m := Manifest{Oldest: 1, Next: 41, Reserved: 41}
			one := newRun(2, 1)
			packets := uint64(0)
			for g := uint64(1); g <= 2; g++ {
				s := one.segment(t, r.SegmentID(g), true, 1<<36)
				s.packets += packets
				one.batch(s, 10, 0)
				one.batch(s, 10, s.here())
				packets += 20
				s.end()
				if g == 2 {
					s.raw[at] ^= 1 << (at % 8)
				}
				slot(t, f, r, g, s)
				m.Begin(g, Run{Number: 2, Start: 1})
			}
			if manifest {
				if _, err := KeepRing(f, m, true); err != nil {
					t.Fatal(err)
				}
			}
			_, err := Tail(f.Name())
			if _, damaged := errors.AsType[*DamagedError](err); !damaged {
				continue
			}
			done := repaired(t, f.Name())
			if len(done.Heads) != 1 || done.Lost != 0 || done.Next != 41 {
				t.Fatalf("byte %d: %+v", at, done)
			}
			expect(t, readFrom(t, f.Name(), 0), 1, 40)
			f.Close()
		}
	}
}
