package trace

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// memoryDir returns a directory in memory, which the test removes.
func memoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "trace-test-")
	testenv.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func open(t testing.TB, events uint32) *Directory {
	t.Helper()
	d, err := Open(filepath.Join(memoryDir(t), "control.trace"), "1.2.3", events)
	testenv.Must(t, err)
	t.Cleanup(func() { d.Close() })
	return d
}

func recorder(t testing.TB, d *Directory, flow string) *Recorder {
	t.Helper()
	r, err := d.Recorder(flow)
	testenv.Must(t, err)
	return r
}

func read(t testing.TB, d *Directory, flow string) *Snapshot {
	t.Helper()
	s, err := Read(filepath.Join(d.Path(), flow+Suffix))
	testenv.Must(t, err)
	return s
}

// TestRecord: a reader finds the rounds and notes, the step, and no round that changed nothing.
func TestRecord(t *testing.T) {
	testenv.Leaks(t)
	d := open(t, 64)
	r := recorder(t, d, "cap")
	at := time.Unix(1700000000, 123456789)
	r.Restart()
	r.Begin(at)
	r.End(0, 0, 0, 0)
	r.Begin(at.Add(time.Millisecond))
	r.Step(Receive)
	r.End(64, 6400, 70, 0)
	r.Begin(at.Add(3 * time.Millisecond))
	r.End(64, 6400, 70, Blocked)
	r.Begin(at.Add(4 * time.Millisecond))
	r.End(64, 6400, 70, Blocked)
	r.Note(State, 0, "waiting: the disk is full")
	r.Note(Lost, 17, "lost_ring_full")
	r.Begin(at.Add(5 * time.Millisecond))
	r.Step(Kick)
	s := read(t, d, "cap")
	if s.Flow != "cap" || s.Version != "1.2.3" || s.PID != os.Getpid() || s.Step != Kick || s.Doing != "waking its devices" || s.Rounds != 4 || s.Packets != 64 || s.Bytes != 6400 || !s.Round.Equal(at.Add(5*time.Millisecond)) {
		t.Errorf("%+v", s)
	}
	want := []Event{
		{Time: at.Add(time.Millisecond), Packets: 64, Bytes: 6400, Since: time.Millisecond, Held: 70},
		{Time: at.Add(3 * time.Millisecond), Since: 2 * time.Millisecond, Held: 70, Blocked: true},
	}
	if len(s.Events) != len(want) {
		t.Fatalf("%d events, want %d: %+v", len(s.Events), len(want), s.Events)
	}
	for i := range want {
		if s.Events[i] != want[i] {
			t.Errorf("event %d is %+v, want %+v", i, s.Events[i], want[i])
		}
	}
	if len(s.Notes) != 2 || s.Notes[0].Kind != "state" || s.Notes[0].Text != "waiting: the disk is full" || s.Notes[1].Kind != "lost" || s.Notes[1].Value != 17 || s.Notes[1].Text != "lost_ring_full" {
		t.Errorf("notes %+v", s.Notes)
	}
	r.Stop()
	if s := read(t, d, "cap"); s.Step != Stopped {
		t.Errorf("after Stop the step is %v", s.Step)
	}
}

// TestRing: the last records are kept, and texts are cut.
func TestRing(t *testing.T) {
	d := open(t, 64)
	r := recorder(t, d, "f")
	for n := range uint64(1000) {
		r.Begin(time.Unix(int64(n), 0))
		r.End(n+1, 10*(n+1), int(n), 0)
		r.Note(DiskError, n, strings.Repeat("x", 200))
	}
	s := read(t, d, "f")
	if len(s.Events) != 63 || s.Events[0].Held != 937 || s.Events[62].Held != 999 || s.Events[62].Packets != 1 || s.Events[62].Bytes != 10 {
		t.Errorf("%d events, from %+v to %+v", len(s.Events), s.Events[0], s.Events[len(s.Events)-1])
	}
	if len(s.Notes) != notesKept-1 || s.Notes[0].Value != 1001-notesKept || len(s.Notes[0].Text) != noteText {
		t.Errorf("%d notes, the first is %+v", len(s.Notes), s.Notes[0])
	}
}

// TestReadWhileWritten: a reader never sees a record that is half overwritten. In each record all numbers say the same.
func TestReadWhileWritten(t *testing.T) {
	d := open(t, 64)
	r := recorder(t, d, "f")
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for n := uint64(1); ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			r.Begin(time.Unix(0, int64(n)))
			r.End(r.live.packets+n%1000+1, r.live.bytes+n%1000+1, int(n%1000)+1, 0)
		}
	})
	defer writer.Wait()
	defer close(stop)
	seen := 0
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		s := read(t, d, "f")
		for i, e := range s.Events {
			if e.Packets != e.Held || e.Bytes != e.Held || uint32(e.Time.UnixNano()%1000)+1 != e.Held || i > 0 && !e.Time.After(s.Events[i-1].Time) {
				t.Fatalf("event %d is torn: %+v", i, e)
			}
			seen++
		}
	}
	if seen == 0 {
		t.Error("no event was seen")
	}
}

// TestKept: which records are intact after others were written meanwhile.
func TestKept(t *testing.T) {
	for _, c := range []struct{ before, after, ring, first, end uint64 }{
		{0, 0, 64, 0, 0}, {10, 10, 64, 0, 10}, {63, 63, 64, 0, 63}, {64, 64, 64, 1, 64}, {100, 100, 64, 37, 100}, {100, 101, 64, 38, 100}, {100, 163, 64, 100, 100}, {100, 500, 64, 100, 100},
		{10, 12, 64, 0, 10}, {10, 5, 64, 0, 10},
	} {
		if first, end := kept(c.before, c.after, c.ring); first != c.first || end != c.end {
			t.Errorf("%+v: from %d to %d", c, first, end)
		}
	}
}

// TestNextDaemon: a daemon moves the files of the one before, which it finds out to have ended, and removes those
// before that. It touches no files of others, and none of a daemon that lives.
func TestNextDaemon(t *testing.T) {
	testenv.Leaks(t)
	path := filepath.Join(memoryDir(t), "control.trace")
	for n := range 3 {
		d, err := Open(path, fmt.Sprint(n), 64)
		testenv.Must(t, err)
		recorder(t, d, fmt.Sprintf("flow%d", n)).Note(State, 0, "running")
		if all, err := ReadAll(path); err != nil || len(all) != 1 || !all[0].Alive || all[0].Version != fmt.Sprint(n) {
			t.Errorf("daemon %d: %+v, %v", n, all, err)
		}
		if _, err := Open(path, "another", 64); err == nil || !strings.Contains(err.Error(), "another daemon writes it") {
			t.Errorf("a second daemon: %v", err)
		}
		testenv.Must(t, d.Close())
		if all, err := ReadAll(path); err != nil || len(all) != 1 || all[0].Alive {
			t.Errorf("after daemon %d: %+v, %v", n, all, err)
		}
		if all, err := ReadAll(Previous(path)); n > 0 && (err != nil || len(all) != 1 || all[0].Version != fmt.Sprint(n-1)) {
			t.Errorf("before daemon %d: %+v, %v", n, all, err)
		}
	}
	theirs := filepath.Join(Previous(path), "notes")
	testenv.Must(t, os.WriteFile(theirs, nil, 0o600))
	if _, err := Open(path, "3", 64); err == nil {
		t.Error("a directory with the files of others is removed")
	}
	if _, err := os.Stat(theirs); err != nil {
		t.Error(err)
	}
}

// TestOfAnotherUser: a directory of another user, one that others may write, and a link are refused, and nothing in them
// is removed.
func TestOfAnotherUser(t *testing.T) {
	testenv.Root(t)
	for name, spoil := range map[string]func(path string) error{
		"owner": func(path string) error { return os.Chown(path, 65534, 65534) },
		"mode":  func(path string) error { return os.Chmod(path, 0o777) },
		"link": func(path string) error {
			return errors.Join(os.Rename(path, path+".real"), os.Symlink(path+".real", path))
		},
	} {
		for _, which := range []func(string) string{func(path string) string { return path }, Previous} {
			path := filepath.Join(memoryDir(t), "control.trace")
			testenv.Must(t, os.Mkdir(path, 0o700))
			bad := which(path)
			testenv.Must(t, os.MkdirAll(bad, 0o700))
			file := filepath.Join(bad, "f"+Suffix)
			testenv.Must(t, os.WriteFile(file, nil, 0o600))
			testenv.Must(t, spoil(bad))
			if d, err := Open(path, "1", 64); err == nil {
				d.Close()
				t.Errorf("%s of %s is accepted", name, bad)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s of %s: %v", name, bad, err)
			}
		}
	}
}

// TestReload: the recorder of a name stays the same until nobody uses it, and begins anew then. After Close a note is
// ignored.
func TestReload(t *testing.T) {
	testenv.Leaks(t)
	d := open(t, 64)
	a := recorder(t, d, "a")
	if again := recorder(t, d, "a"); again != a {
		t.Error("the same name has two recorders")
	}
	testenv.Must(t, d.Keep(func(name string) bool { return name == "b" }))
	a.Note(State, 0, "late")
	if again := recorder(t, d, "a"); again == a {
		t.Error("a name that was not in use has the same recorder")
	}
	if s := read(t, d, "a"); len(s.Notes) != 0 {
		t.Errorf("%+v", s.Notes)
	}
	testenv.Must(t, d.Close())
}

// TestOnDisk: a file system that is not in memory is refused, with the remedy. So is one that has no room.
func TestOnDisk(t *testing.T) {
	dir := testenv.DiskDir(t)
	if _, err := Open(filepath.Join(dir, "control.trace"), "1", 64); err == nil || !strings.Contains(err.Error(), "tmpfs") {
		t.Errorf("on a disk: %v", err)
	}
	testenv.Root(t)
	small := filepath.Join(dir, "small")
	testenv.Must(t, os.Mkdir(small, 0o700))
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v\n%s", err, out)
	}
	defer exec.Command("umount", small).Run()
	d, err := Open(filepath.Join(small, "control.trace"), "1", 65536)
	testenv.Must(t, err)
	defer d.Close()
	if _, err := d.Recorder("f"); err == nil || !strings.Contains(err.Error(), "lower trace.events") {
		t.Errorf("without room: %v", err)
	}
	if _, err := os.Stat(filepath.Join(d.Path(), "f"+Suffix)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file is left: %v", err)
	}
}

// TestNil: without a directory nothing is recorded.
func TestNil(t *testing.T) {
	var d *Directory
	r, err := d.Recorder("f")
	if r != nil || err != nil {
		t.Fatalf("%v, %v", r, err)
	}
	r.Restart()
	r.Begin(time.Now())
	r.Step(Kick)
	r.End(1, 1, 1, 0)
	r.Note(State, 0, "")
	r.Stop()
	testenv.Check(t, errors.Join(r.Close(), d.Keep(nil), d.Close()))
}

// TestAllocatesNothing: what the worker's thread calls does not allocate.
func TestAllocatesNothing(t *testing.T) {
	r := recorder(t, open(t, 64), "f")
	n, now := uint64(0), time.Now()
	if allocs := testing.AllocsPerRun(1000, func() {
		n++
		r.Begin(now)
		r.Step(Receive)
		r.End(n, n, 1, uint32(n&1))
	}); allocs != 0 {
		t.Errorf("a round allocates %v times", allocs)
	}
}

// FuzzParse: any bytes are read or refused.
func FuzzParse(f *testing.F) {
	d := open(f, 64)
	r := recorder(f, d, "f")
	r.Begin(time.Now())
	r.End(1, 1, 1, 7)
	r.Note(Lost, 1, "reason")
	good, err := os.ReadFile(filepath.Join(d.Path(), "f"+Suffix))
	testenv.Must(f, err)
	f.Add(good)
	f.Add(good[:headerLen])
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parse(b, func() ([]byte, error) { return b[:min(len(b), headerLen)], nil })
		if err == nil && (len(s.Events) > mostRounds || len(s.Notes) > notesKept) {
			t.Errorf("%d events, %d notes", len(s.Events), len(s.Notes))
		}
	})
}

// BenchmarkRound is what a round with packets costs in addition: six steps and a record.
func BenchmarkRound(b *testing.B) {
	for name, r := range map[string]*Recorder{"on": recorder(b, open(b, 4096), "f"), "off": nil} {
		b.Run(name, func(b *testing.B) {
			now := time.Now()
			for n := uint64(0); b.Loop(); n++ {
				r.Begin(now)
				for s := Receive; s <= Kick; s++ {
					r.Step(s)
				}
				r.End(n+1, n+1, 64, 0)
			}
		})
	}
}
