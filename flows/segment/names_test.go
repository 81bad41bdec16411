package segment

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestStoreAmongStrangers: names of segments that are no segments, and cannot be,
// are no reason not to start, and nothing is written through them.
func TestStoreAmongStrangers(t *testing.T) {
	c := newManagerLab(t)
	const stamp = "md-20260102T030405Z-"
	outside := filepath.Join(t.TempDir(), "outside")
	for _, err := range []error{
		os.WriteFile(outside, labSegment(t, 3), 0o600),
		os.Mkdir(filepath.Join(c.dir, stamp+"000001.pcapng"), 0o700),
		unix.Mkfifo(filepath.Join(c.dir, stamp+"000002.pcapng"), 0o600),
		os.Symlink(outside, filepath.Join(c.dir, stamp+"000003.pcapng")),
		os.WriteFile(filepath.Join(c.dir, stamp+"9223372036854775807.pcapng"), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	before, err := os.Stat(outside)
	if err != nil {
		t.Fatal(err)
	}
	s, seg := c.started(t)
	if seg.Number != 1 {
		t.Errorf("the first segment has number %d", seg.Number)
	}
	s.Retire(seg)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if after, err := os.Stat(outside); err != nil || after.Size() != before.Size() {
		t.Errorf("a file outside was changed: %v", err)
	}
	if err := os.Symlink(outside, filepath.Join(c.dir, ".md-000002.next")); err != nil {
		t.Fatal(err)
	}
	if err := c.open(t); !errors.Is(err, os.ErrExist) {
		t.Errorf("a link in place of the next segment: %v", err)
	}
}
