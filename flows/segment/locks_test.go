package segment

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// noLockWait makes lockFile give up at once if another process holds the file.
func noLockWait(t *testing.T) {
	before := lockTimeout
	lockTimeout = 0
	t.Cleanup(func() { lockTimeout = before })
}

// started opens the manager and acquires its first segment, which then has its final name.
func (c *managerLab) started(t *testing.T) (*Manager, *Segment) {
	t.Helper()
	s, err := Open(Config{To: c.to, Head: labHead, Log: slog.New(slog.NewTextHandler(&c.log, nil))})
	testenv.Must(t, err)
	return s, next(t, s)
}

// finished reports whether a file is a complete segment.
func finished(t *testing.T, path string) bool {
	t.Helper()
	f, err := os.Open(path)
	testenv.Must(t, err)
	defer f.Close()
	info, err := f.Stat()
	testenv.Must(t, err)
	done, err := pcapng.Finished(f, info.Size())
	testenv.Must(t, err)
	return done
}

// TestOthersSegments: a second unifiedd with the same segment paths must not recover, and so
// truncate, the segments that the first one is writing.
func TestOthersSegments(t *testing.T) {
	noLockWait(t)
	c := newManagerLab(t)
	s, seg := c.started(t)
	before := c.list(t)
	if err := c.open(t); !errors.Is(err, errInUse) || !strings.Contains(err.Error(), c.dir) {
		t.Errorf("a second store over the same segments: %v", err)
	}
	for name, is := range c.list(t) {
		if before[name] != is && !strings.HasSuffix(name, ".next") { // the first one is preparing it
			t.Errorf("%s was %s and is %s", name, before[name], is)
		}
	}
	s.Retire(seg)
	testenv.Check(t, s.Close())
	if !finished(t, seg.Path()) {
		t.Error("the segment is not complete")
	}
	if err := c.open(t); err != nil {
		t.Errorf("once the first has ended: %v", err)
	}
}

// TestOthersCapture: a second capture to the same file must not replace the file that the first one
// is writing.
func TestOthersCapture(t *testing.T) {
	noLockWait(t)
	c := newManagerLab(t)
	c.to.File, c.to.Exact, c.to.Prepare = c.dir+"/out.pcapng", true, "none"
	s, seg := c.started(t)
	if err := c.open(t); !errors.Is(err, errInUse) {
		t.Errorf("a second capture to the same file: %v", err)
	}
	s.Retire(seg)
	if err := s.Close(); err != nil || !finished(t, c.to.File) {
		t.Errorf("the first capture is not complete: %v", err)
	}
}

// TestSegmentMoved: the manager completes an incomplete segment that a user has moved, and leaves
// the file in its place alone.
func TestSegmentMoved(t *testing.T) {
	c := newManagerLab(t)
	s, seg := c.started(t)
	moved := filepath.Join(c.dir, "moved")
	testenv.Must(t, os.Rename(seg.Path(), moved))
	testenv.Must(t, os.WriteFile(seg.Path(), []byte("somebody else's"), 0o600))
	s.Retire(seg)
	testenv.Check(t, s.Close())
	if !finished(t, moved) {
		t.Error("the segment that was moved is not complete")
	}
	if got, err := os.ReadFile(seg.Path()); string(got) != "somebody else's" {
		t.Errorf("what took its place has %d bytes: %v", len(got), err)
	}
}

// TestSegmentPutAway: the manager starts although it may only read a complete segment.
func TestSegmentPutAway(t *testing.T) {
	testenv.Root(t)
	c := newManagerLab(t)
	s, seg := c.started(t)
	s.Retire(seg)
	testenv.Must(t, s.Close())
	testenv.Must(t, errors.Join(os.Chmod(seg.Path(), 0o444), os.Chmod(c.dir, 0o777), os.Chmod(filepath.Dir(c.dir), 0o755)))
	if err := asNobody(func() error { return c.open(t) }); err != nil {
		t.Errorf("a complete segment: %v", err)
	}
	c.put(t, "md-20260102T030405Z-000009.pcapng", labSegment(t, 1))
	if err := asNobody(func() error { return c.open(t) }); !errors.Is(err, os.ErrPermission) {
		t.Errorf("a segment that needs to be mended: %v", err)
	}
}

// asNobody calls f with another user's rights to files.
func asNobody(f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its user
		if err := unix.Setfsuid(65534); err != nil {
			result <- err
			return
		}
		result <- f()
	}()
	return <-result
}

// TestStoreFollowsNoLink: a user with write permission for the directory puts symbolic links where
// the manager reads and writes; the manager changes neither their targets nor a directory that
// replaces its own.
func TestStoreFollowsNoLink(t *testing.T) {
	c, elsewhere := newManagerLab(t), newManagerLab(t)
	elsewhere.put(t, "victim", labSegment(t, 5)) // a capture that recovery would cut
	victim := filepath.Join(elsewhere.dir, "victim")
	before, err := os.ReadFile(victim)
	testenv.Must(t, err)
	same := func(when string) {
		t.Helper()
		if now, err := os.ReadFile(victim); err != nil || string(now) != string(before) {
			t.Fatalf("%s: the victim has %d bytes of %d: %v", when, len(now), len(before), err)
		}
	}
	for _, name := range []string{"md-20260102T030405Z-000001.pcapng", ".md-000002.next", ".md-000001.next"} {
		testenv.Must(t, os.Symlink(victim, filepath.Join(c.dir, name)))
	}
	_ = c.open(t) // it may refuse, because a name is in use
	same("links")
	testenv.Must(t, os.Remove(filepath.Join(c.dir, ".md-000001.next")))
	testenv.Must(t, c.open(t))
	same("links that are no segments")
	for _, name := range []string{"", "C"} {
		c := newManagerLab(t)
		c.to.Exact = true
		if name == "C" {
			c.to.Rotate.Size = 1 << 20
		}
		testenv.Must(t, os.Symlink(victim, c.to.File))
		if err := c.open(t); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("a link as the file to write: %v", err)
		}
		same("a link as the file to write")
	}
}

// TestStoreKeepsItsDirectory: if a link replaces the directory while the flow runs, the flow's
// files stay in the original directory.
func TestStoreKeepsItsDirectory(t *testing.T) {
	c := newManagerLab(t)
	c.to.Segment.Keep.Count = 1
	sub, moved, other := filepath.Join(c.dir, "sub"), filepath.Join(c.dir, "moved"), filepath.Join(c.dir, "other")
	for _, d := range []string{sub, other} {
		testenv.Must(t, os.Mkdir(d, 0o755))
	}
	c.to.File = filepath.Join(sub, "md")
	s, err := Open(Config{To: c.to, Head: labHead, Log: slog.New(slog.DiscardHandler)})
	testenv.Must(t, err)
	testenv.Must(t, os.Rename(sub, moved))
	testenv.Must(t, os.Symlink(other, sub))
	for range 3 {
		s.Retire(next(t, s))
	}
	testenv.Check(t, s.Close())
	if names := entries(t, other); len(names) > 0 {
		t.Errorf("made elsewhere: %v", names)
	}
	if names := entries(t, moved); len(names) != 1 || !strings.HasSuffix(names[0], "-000003.pcapng") {
		t.Errorf("where the flow began there are %v", names)
	}
}

func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	testenv.Must(t, err)
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}
