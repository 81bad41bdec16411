package record

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// made returns a record at a place of its own.
func made(t *testing.T) *File {
	t.Helper()
	r, err := New(filepath.Join(t.TempDir(), "it."))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func noted(t *testing.T, r *File) (words []string) {
	t.Helper()
	if _, err := r.Get(&words); err != nil {
		t.Fatal(err)
	}
	return words
}

func put(t *testing.T, r *File, words ...string) {
	t.Helper()
	if err := r.Put(words); err != nil {
		t.Fatal(err)
	}
}

func TestPut(t *testing.T) {
	r := made(t)
	for _, words := range [][]string{{"one", "two", "three"}, {"one"}, {}, {"four", "five"}} {
		put(t, r, words...)
		if got := noted(t, r); strings.Join(got, " ") != strings.Join(words, " ") {
			t.Errorf("%q is noted as %q", words, got)
		}
	}
}

// TestKilledInPut: if a process is killed before it truncates the file, the record has the new
// value.
func TestKilledInPut(t *testing.T) {
	r := made(t)
	put(t, r, "a long word", "and another")
	if _, err := r.WriteAt([]byte(`["new"]`), 0); err != nil {
		t.Fatal(err)
	}
	if got := noted(t, r); len(got) != 1 || got[0] != "new" {
		t.Errorf("noted is %q", got)
	}
}

func TestNothingNoted(t *testing.T) {
	r := made(t)
	var words []string
	if was, err := r.Get(&words); was || err != nil {
		t.Errorf("an empty record: %v, %v", was, err)
	}
	for _, text := range []string{`["cut`, `[`, `words`} {
		if _, err := r.WriteAt([]byte(text), 0); err != nil {
			t.Fatal(err)
		}
		if was, err := r.Get(&words); was || err == nil {
			t.Errorf("%q is a note, %v", text, words)
		}
		if err := r.Truncate(0); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSweep: Sweep calls give for a record after its process has ended, again until give is done, and then no
// longer.
func TestSweep(t *testing.T) {
	r := made(t)
	put(t, r, "huge pages")
	place := strings.TrimRight(r.Name(), "0123456789")
	swept := func(done bool) (n int) {
		err := Sweep(place, func(f *File) (bool, error) {
			if n++; noted(t, f)[0] != "huge pages" {
				t.Error("another record was swept")
			}
			return done, nil
		})
		if err != nil {
			t.Error(err)
		}
		return n
	}
	if n := swept(true); n != 0 {
		t.Errorf("a record in use was swept %d times", n)
	}
	r.Close()
	for _, done := range []bool{false, true} {
		if n := swept(done); n != 1 {
			t.Errorf("swept %d times", n)
		}
	}
	if _, err := os.Stat(r.Name()); !os.IsNotExist(err) {
		t.Error("the record is still there")
	}
}

// TestSweepNamesTheFile: Sweep leaves an unreadable record alone, and the error names the file and
// a remedy.
func TestSweepNamesTheFile(t *testing.T) {
	r := made(t)
	if _, err := r.WriteAt([]byte("text"), 0); err != nil {
		t.Fatal(err)
	}
	r.Close()
	err := Sweep(r.Name(), func(f *File) (bool, error) {
		var words []string
		_, err := f.Get(&words)
		return true, err
	})
	if err == nil || !strings.Contains(err.Error(), r.Name()) || !strings.Contains(err.Error(), "remove the file") {
		t.Errorf("the error is %v", err)
	}
	if _, err := os.Stat(r.Name()); err != nil {
		t.Error(err)
	}
}
