package archive

import (
	"context"
	"errors"
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

// entries returns the names in the store except the lock.
func entries(t *testing.T, s *Store) (names []string) {
	t.Helper()
	all, err := os.ReadDir(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if e.Name() != "lock" {
			names = append(names, e.Name())
		}
	}
	return names
}

// TestStoreKeeps: the store does not make an existing thing again, except with Refresh.
func TestStoreKeeps(t *testing.T) {
	s := testStore(t, t.TempDir())
	for n, refresh := range []bool{false, false, true} {
		s.Refresh = refresh
		dir, err := s.get(t.Context(), "thing", filled(string(rune('0'+n))))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := content(t, dir), []string{"0", "0", "2"}[n]; got != want {
			t.Errorf("call %d gives %q, not %q", n, got, want)
		}
	}
	if got := entries(t, s); len(got) != 1 {
		t.Errorf("the store has %q", got)
	}
}

// TestStoreFails: a failed attempt leaves nothing in the store, and an existing thing stays.
func TestStoreFails(t *testing.T) {
	s := testStore(t, t.TempDir())
	broken := errors.New("the line went dead")
	half := func(ctx context.Context, into, scratch string) error {
		return errors.Join(filled("half")(ctx, into, scratch), filled("half")(ctx, scratch, into), broken)
	}
	if _, err := s.get(t.Context(), "thing", half); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	if got := entries(t, s); got != nil {
		t.Errorf("the store has %q", got)
	}
	dir, err := s.get(t.Context(), "thing", filled("whole"))
	if err != nil {
		t.Fatal(err)
	}
	s.Refresh = true
	if _, err := s.get(t.Context(), "thing", half); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	if got := content(t, dir); got != "whole" {
		t.Errorf("an attempt that went wrong left %q", got)
	}
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
