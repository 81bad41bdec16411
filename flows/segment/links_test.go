package segment

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestStoreFollowsNoLink: who may write to the directory of a flow's files puts links where the flow will look and write. Nothing is
// written to what they lead to, and what the directory is exchanged for is not written to either.
func TestStoreFollowsNoLink(t *testing.T) {
	c, elsewhere := newManagerLab(t), newManagerLab(t)
	elsewhere.put(t, "victim", labSegment(t, 5)) // a capture that recovery would cut
	victim := filepath.Join(elsewhere.dir, "victim")
	before, err := os.ReadFile(victim)
	if err != nil {
		t.Fatal(err)
	}
	same := func(when string) {
		t.Helper()
		if now, err := os.ReadFile(victim); err != nil || string(now) != string(before) {
			t.Fatalf("%s: the victim has %d bytes of %d: %v", when, len(now), len(before), err)
		}
	}
	for _, name := range []string{"md-20260102T030405Z-000001.pcapng", ".md-000002.next", ".md-000001.next"} {
		if err := os.Symlink(victim, filepath.Join(c.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	_ = c.open(t) // it may refuse, because of a name that is taken
	same("links")
	if err := os.Remove(filepath.Join(c.dir, ".md-000001.next")); err != nil {
		t.Fatal(err)
	}
	if err := c.open(t); err != nil {
		t.Fatal(err)
	}
	same("links that are no segments")
	for _, name := range []string{"", "C"} {
		c := newManagerLab(t)
		c.to.Exact = true
		if name == "C" {
			c.to.Rotate.Size = 1 << 20
		}
		if err := os.Symlink(victim, c.to.File); err != nil {
			t.Fatal(err)
		}
		if err := c.open(t); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("a link as the file to write: %v", err)
		}
		same("a link as the file to write")
	}
}

// TestStoreKeepsItsDirectory: the directory is exchanged for a link while the flow runs; its files stay in the one it was begun in.
func TestStoreKeepsItsDirectory(t *testing.T) {
	c := newManagerLab(t)
	c.to.Segment.Keep = 1
	sub, moved, other := filepath.Join(c.dir, "sub"), filepath.Join(c.dir, "moved"), filepath.Join(c.dir, "other")
	for _, d := range []string{sub, other} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c.to.File = filepath.Join(sub, "md")
	s, err := Open(Config{To: c.to, Head: labHead, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(sub, moved); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, sub); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		var next *Segment
		testenv.Wait(t, 5e9, "a segment", func() bool { next = s.Acquire(time.Now()); return next != nil })
		testenv.Wait(t, 5e9, "its name", next.NameDurable)
		s.Retire(next)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}
