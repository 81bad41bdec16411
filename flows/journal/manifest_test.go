package journal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/unifiedd/unifiedd/internal/newfile"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// drawManifest draws a manifest that a log may have.
func drawManifest(t *rapid.T) Manifest {
	n := rapid.Uint64Range(0, 1<<60)
	m := Manifest{
		Flags: rapid.Uint32Range(0, 7).Draw(t, "flags"), Generation: n.Draw(t, "generation"), ID: [16]byte{1, 2, 15: 3},
		Newest: n.Draw(t, "newest"), Next: 1 + n.Draw(t, "next"), Term: n.Draw(t, "term"), Vote: 7, Self: 8, Committed: 9, Boot: [16]byte{4, 15: 5},
	}
	m.Oldest = rapid.Uint64Range(1, m.Newest+1).Draw(t, "oldest")
	m.Reserved = m.Next + rapid.Uint64Range(0, 1<<20).Draw(t, "reserved")
	for i := range rapid.Uint64Range(0, mostRuns).Draw(t, "runs") {
		m.Runs = append(m.Runs, Run{n.Draw(t, "run"), 1 + i, 2 + i, 3 + i})
	}
	for i := range rapid.Uint64Range(0, mostEpochs).Draw(t, "epochs") {
		m.Epochs = append(m.Epochs, Epoch{i, 2 * i})
	}
	for i := range rapid.Uint64Range(0, mostAbsent).Draw(t, "absent") {
		m.Absent = append(m.Absent, Range{10*i + 1, 10*i + 3})
	}
	return m
}

// TestManifestEncodes: decoding an encoded manifest returns the same manifest. If any one byte
// changes, decoding fails.
func TestManifestEncodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawManifest(t)
		b := m.encode()
		got, err := decodeManifest(b)
		if err != nil || !cmp.Equal(got, m) {
			t.Fatalf("%v: %s", err, cmp.Diff(m, got))
		}
		at := rapid.IntRange(0, manifestLen-1).Draw(t, "at")
		b[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "change"))
		if _, err := decodeManifest(b); err == nil {
			t.Fatalf("with byte %d changed it is still a manifest", at)
		}
	})
}

// TestManifestLimits: a manifest with too many runs or absent ranges omits the oldest ones. It
// still names every one of the newest segments.
func TestManifestLimits(t *testing.T) {
	m := Manifest{Oldest: 1, Next: 1, Reserved: 1}
	for i := range uint64(200) {
		m.Begin(3*i+1, Run{Number: i, Start: i})
	}
	got, err := decodeManifest(m.encode())
	if err != nil || got.Newest != 598 || len(got.Runs) != mostRuns || got.Runs[0].Number != 200-mostRuns || len(got.Absent) != mostAbsent {
		t.Fatalf("%+v: %v", got, err)
	}
	for n := got.Absent[1].First - 1; n <= 598; n++ {
		if got.Names(n) != (n%3 == 1) {
			t.Errorf("segment %d: %v", n, got.Names(n))
		}
	}
}

// kept keeps a manifest in a file.
func kept(t *testing.T, dir string, m Manifest) *Keeper {
	t.Helper()
	d, err := newfile.OpenDir(dir)
	testenv.Must(t, err)
	defer d.Close()
	k, err := KeepFile(d, "wal"+ManifestSuffix, m, func(*os.File) error { return nil })
	testenv.Must(t, err)
	t.Cleanup(func() { k.Close() })
	return k
}

// TestKeeperCrashes: a crash may leave any part of the writes since the last flush on the disk.
// Reading then returns the flushed manifest or a later one.
func TestKeeperCrashes(t *testing.T) {
	dir := t.TempDir()
	k := kept(t, dir, Manifest{Oldest: 1, Next: 1, Reserved: 1})
	path := filepath.Join(dir, "wal"+ManifestSuffix)
	rapid.Check(t, func(t *rapid.T) {
		safe, _ := os.ReadFile(path)
		flushed := k.Now().Next
		for range rapid.IntRange(1, 5).Draw(t, "writes") {
			flush := rapid.IntRange(0, 3).Draw(t, "flush") == 0
			if err := k.Update(flush, func(m *Manifest) { m.Next++; m.Reserved = m.Next }); err != nil {
				t.Fatal(err)
			}
			now, _ := os.ReadFile(path)
			if torn := tear(t, safe, now); !flush {
				m, _, err := readManifest(bytes.NewReader(torn), 0)
				if err != nil || m.Next < flushed || m.Next > k.Now().Next {
					t.Fatalf("position %d was flushed and %d written, and %d is read: %v", flushed, k.Now().Next, m.Next, err)
				}
				continue
			}
			safe, flushed = now, k.Now().Next
		}
		if err := k.Update(true, func(*Manifest) {}); err != nil {
			t.Fatal(err)
		}
	})
}

// tear returns a file in which some sectors are new and the others are old.
func tear(t *rapid.T, before, now []byte) []byte {
	torn := bytes.Clone(before)
	for _, at := range copies {
		for s := at; s < at+manifestLen; s += 512 {
			if rapid.Bool().Draw(t, "sector") {
				copy(torn[s:s+512], now[s:])
			}
		}
	}
	return torn
}

// TestManifestCopies: one damaged copy has no effect; with four damaged copies reading fails.
func TestManifestCopies(t *testing.T) {
	dir := t.TempDir()
	k := kept(t, dir, Manifest{Oldest: 1, Next: 5, Reserved: 5})
	if err := k.Update(true, func(m *Manifest) { m.Next, m.Reserved = 7, 7 }); err != nil {
		t.Fatal(err)
	}
	whole, _ := os.ReadFile(filepath.Join(dir, "wal"+ManifestSuffix))
	for i, at := range copies {
		b := bytes.Clone(whole)
		b[at+100] ^= 1
		if m, damaged, err := readManifest(bytes.NewReader(b), 0); err != nil || m.Next != 7 || damaged != 1 {
			t.Errorf("copy %d: %+v, %d damaged: %v", i, m, damaged, err)
		}
	}
	for _, at := range copies {
		whole[at+100] ^= 1
	}
	for name, b := range map[string][]byte{"damaged": whole, "empty": nil, "zeros": make([]byte, ManifestSize)} {
		_, _, err := readManifest(bytes.NewReader(b), 0)
		if !errors.Is(err, errManifest) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// withManifest writes a log of two segments, records 1 to 40, and its manifest, as after an orderly
// end.
func withManifest(t *testing.T) (prefix string, second *made) {
	t.Helper()
	prefix = filepath.Join(t.TempDir(), "wal")
	r := newRun(1, 1)
	m := Manifest{Oldest: 1, Next: 41, Reserved: 41, Flags: FlagEnded}
	for i := range 2 {
		second = r.file(t)
		r.batch(second, 10, 0)
		r.batch(second, 10, second.here())
		second.end().write(t, segmentPath(prefix, i+1))
		m.Begin(uint64(i+1), Run{Number: 1, Start: 1})
	}
	kept(t, filepath.Dir(prefix), m)
	return prefix, second
}

// TestHeadDamage: one bit flips in each byte of the newest head, with a manifest and without one.
// The end of the log stays the same, or the log is refused. The short form takes every fifth byte.
func TestHeadDamage(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 5
	}
	for _, manifest := range []bool{true, false} {
		prefix, b := withManifest(t)
		if !manifest {
			testenv.Must(t, os.Remove(prefix+ManifestSuffix))
		}
		refused := 0
		for at := 0; at < b.batches[0].offset; at += step {
			i := 8*at + at%8
			b.raw[i/8] ^= 1 << (i % 8)
			b.write(t, segmentPath(prefix, 2))
			end, err := Tail(prefix)
			report, err2 := Verify(prefix)
			_, damaged := errors.AsType[*DamagedError](err)
			switch {
			case damaged:
				if refused++; err2 != nil || len(report.Damage) != 1 || report.Intact() || !strings.Contains(err.Error(), "log repair "+prefix) {
					t.Fatalf("bit %d: %v; %+v, %v", i, err, report, err2)
				}
			case err == nil && (end.Next != 41 || err2 != nil || report.Next != 41 || report.Lost+report.Records != 40):
				t.Fatalf("bit %d: the log ends at %d, %v; %+v, %v", i, end.Next, err, report, err2)
			}
			b.raw[i/8] ^= 1 << (i % 8)
		}
		if refused < 100/step {
			t.Errorf("only %d bits are noticed", refused)
		}
	}
}

// TestAbsence: a missing segment is damage if the manifest names it, and no damage otherwise.
func TestAbsence(t *testing.T) {
	for name, c := range map[string]struct {
		harm  func(prefix string) error
		says  string // "": the log continues
		next  uint64
		count int
	}{
		"nothing":         {func(string) error { return nil }, "", 41, 0},
		"newest is gone":  {func(p string) error { return os.Remove(segmentPath(p, 2)) }, "segment 2", 0, 1},
		"newest is empty": {func(p string) error { return os.Truncate(segmentPath(p, 2), 0) }, "segment 2", 0, 1},
		"newest is gone, and one is prepared": {func(p string) error {
			newRun(1, 1).file(t).write(t, filepath.Join(filepath.Dir(p), ".wal-000003.next"))
			return os.Remove(segmentPath(p, 2))
		}, "segment 2", 0, 1},
		"oldest is gone":       {func(p string) error { return os.Remove(segmentPath(p, 1)) }, "segment 1", 0, 1},
		"both are gone":        {func(p string) error { return errors.Join(os.Remove(segmentPath(p, 1)), os.Remove(segmentPath(p, 2))) }, "segments 1 to 2", 0, 1},
		"manifest is gone":     {func(p string) error { return os.Remove(p + ManifestSuffix) }, "", 41, 0},
		"manifest is empty":    {func(p string) error { return os.Truncate(p+ManifestSuffix, 0) }, "no copy of the manifest", 0, 1},
		"newest is cut":        {func(p string) error { return os.Truncate(segmentPath(p, 2), 1024) }, "", 41, 0},
		"one more without one": {func(p string) error { return os.WriteFile(segmentPath(p, 3), nil, 0o600) }, "segment 3", 0, 1},
		"one prepared": {func(p string) error {
			return os.WriteFile(filepath.Join(filepath.Dir(p), ".wal-000003.next"), nil, 0o600)
		}, "", 41, 0},
	} {
		prefix, _ := withManifest(t)
		testenv.Must(t, c.harm(prefix))
		end, err := Tail(prefix)
		report, err2 := Verify(prefix)
		if err2 != nil || len(report.Damage) != c.count {
			t.Errorf("%s: verified: %+v, %v", name, report, err2)
		}
		if c.says == "" {
			if err != nil || end.Next != c.next || end.Lost != report.Lost {
				t.Errorf("%s: %+v, %v", name, end, err)
			}
			continue
		}
		if _, damaged := errors.AsType[*DamagedError](err); !damaged || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
