package pcapng

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestNames: List returns files whose names Names made, oldest first, and no others.
func TestNames(t *testing.T) {
	dir := t.TempDir()
	n := NewNames(filepath.Join(dir, "a.b"))
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("east", 3600))
	want := []Named{{n.Final(2, at), 2, false}, {n.Final(999999, at), 999999, false}, {n.Prepared(1000000), 1000000, true}}
	if name := filepath.Base(want[0].Path); name != "a.b-20260102T020405Z-000002.pcapng" {
		t.Errorf("a segment is named %s", name)
	}
	for _, name := range []string{
		want[2].Path, want[1].Path, want[0].Path, NewNames(filepath.Join(dir, "a")).Final(1, at), NewNames(filepath.Join(dir, "axb")).Final(1, at),
		filepath.Join(dir, "a.b-20260102T020405Z-00002.pcapng"), filepath.Join(dir, "a.b-20260102T020405Z-0000000000000002.pcapng"), filepath.Join(dir, "a.b-000003.next"),
		filepath.Join(dir, "a.b-20260102T020405Z-000004.pcapng.gz"),
	} {
		testenv.Must(t, os.WriteFile(name, nil, 0o600))
	}
	testenv.Must(t, os.Symlink(want[0].Path, n.Final(5, at)))
	if found, err := n.List(); err != nil || !slices.Equal(found, want) {
		t.Errorf("%+v, %v", found, err)
	}
	if NewNames("a").Dir != "." {
		t.Errorf("a prefix without a directory is in %q", NewNames("a").Dir)
	}
}
