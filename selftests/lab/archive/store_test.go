package archive

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

func testStore(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := openStoreAt(dir, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// filled puts a file with that content into the directory.
func filled(content string) func(context.Context, string, string) error {
	return func(_ context.Context, into, _ string) error {
		return os.WriteFile(filepath.Join(into, "file"), []byte(content), 0o600)
	}
}

func content(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestStoreAfterKill: unfinished files of a killed process do not get into a new thing.
func TestStoreAfterKill(t *testing.T) {
	s := testStore(t, t.TempDir())
	left := filepath.Join(s.dir, "unfinished", "into")
	if err := os.MkdirAll(left, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(left, "stale"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dir, err := s.get(t.Context(), "thing", filled("new"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "stale")); err == nil {
		t.Error("what was left unfinished is in the new thing")
	}
}

// TestStoreShared: if several processes request a thing, one makes it.
func TestStoreShared(t *testing.T) {
	dir := t.TempDir()
	var made atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		s := testStore(t, dir)
		wg.Go(func() {
			path, err := s.get(t.Context(), "thing", func(ctx context.Context, into, scratch string) error {
				made.Add(1)
				return filled("once")(ctx, into, scratch)
			})
			if err != nil || content(t, path) != "once" {
				t.Errorf("%s: %v", path, err)
			}
		})
	}
	wg.Wait()
	if made.Load() != 1 {
		t.Errorf("it was made %d times", made.Load())
	}
}
