package newfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// names returns the names of the files in a directory.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	testenv.Must(t, err)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// write makes a file with some text.
func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	testenv.Must(t, errors.Join(os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode)))
}

// TestReplace: the old file stays until the new one is complete. The new one has the old one's permissions.
// No other file ever appears.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	write(t, path, "old", 0o604)
	for _, commit := range []bool{false, true} {
		f, err := Replace(path, 0o640)
		testenv.Must(t, err)
		if _, err := f.WriteString("new"); err != nil {
			t.Fatal(err)
		}
		if old, err := os.ReadFile(path); string(old) != "old" || len(names(t, dir)) != 1 {
			t.Errorf("meanwhile: %q in %v: %v", old, names(t, dir), err)
		}
		end, want := f.Discard, "old"
		if commit {
			end, want = f.Commit, "new"
		}
		testenv.Must(t, end())
		info, err := os.Stat(path)
		if err != nil || info.Mode() != 0o604 {
			t.Errorf("mode %v: %v", info.Mode(), err)
		}
		if now, err := os.ReadFile(path); string(now) != want || len(names(t, dir)) != 1 {
			t.Errorf("then: %q in %v: %v", now, names(t, dir), err)
		}
	}
	f, err := Replace(filepath.Join(dir, "another"), 0o600)
	testenv.Must(t, err)
	if err := f.Commit(); err != nil || len(names(t, dir)) != 2 {
		t.Errorf("%v: %v", names(t, dir), err)
	}
}

// TestReplaceNamed does the same on a file system that does not support files without a name.
func TestReplaceNamed(t *testing.T) {
	at := t.TempDir()
	path := filepath.Join(at, "file")
	write(t, path, "old", 0o600)
	for _, end := range []func(*File) error{(*File).Discard, (*File).Commit} {
		d, name, err := Open(path)
		testenv.Must(t, err)
		f := &File{dir: d, name: name, made: ".hidden"}
		if f.File, err = d.Create(f.made, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := end(f); err != nil || len(names(t, at)) != 1 {
			t.Errorf("%v: %v", names(t, at), err)
		}
	}
	if b, err := os.ReadFile(path); len(b) != 0 {
		t.Errorf("%q: %v", b, err)
	}
}

// TestReplaceLongName: a name may be as long as the file system has it.
func TestReplaceLongName(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{strings.Repeat("e", 255), strings.Repeat("я", 127)} {
		f, err := Replace(filepath.Join(dir, name), 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Commit(); err != nil {
			t.Errorf("%.20s: %v", name, err)
		}
		if hidden := f.hidden(); len(hidden) > 255 {
			t.Errorf("%q has %d bytes", hidden, len(hidden))
		}
	}
	if got := names(t, dir); len(got) != 2 {
		t.Errorf("%q", got)
	}
}

// TestBelow: a directory that others name is opened below, and no name or link leads elsewhere.
func TestBelow(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "in/a/b"), 0o755), os.Mkdir(filepath.Join(dir, "out"), 0o755), os.Symlink("../out", filepath.Join(dir, "in/link")),
		os.Symlink("a", filepath.Join(dir, "in/inner"))); err != nil {
		t.Fatal(err)
	}
	d, err := OpenDir(filepath.Join(dir, "in"))
	testenv.Must(t, err)
	defer d.Close()
	for _, path := range []string{"..", "../out", "a/../../out", "link", "link/x", "inner", "/etc", dir, "a/b/c", ""} {
		if below, err := d.Below(path); err == nil {
			t.Errorf("%q was opened", path)
			below.Close()
		}
	}
	for _, path := range []string{".", "a", "a/b", "a/../a/b"} {
		below, err := d.Below(path)
		if err != nil {
			t.Errorf("%q: %v", path, err)
			continue
		}
		if f, err := below.Create("file", 0o600); err != nil {
			t.Errorf("%q: %v", path, err)
		} else {
			f.Close()
		}
		_ = below.Remove("file") // for the next one
		below.Close()
	}
}

// TestLinks: no call follows or replaces a link, and files are made in the directory that was opened, even if
// its path changes.
func TestLinks(t *testing.T) {
	dir := t.TempDir()
	mallory, etc := filepath.Join(dir, "mallory"), filepath.Join(dir, "etc")
	for _, d := range []string{mallory, etc} {
		testenv.Must(t, os.Mkdir(d, 0o755))
	}
	secret := filepath.Join(etc, "secret")
	write(t, secret, "root's", 0o600)
	link := filepath.Join(mallory, "file")
	testenv.Must(t, os.Symlink(secret, link))
	if _, err := Replace(link, 0o600); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("replaces a link: %v", err)
	}
	d, name, err := Open(link)
	testenv.Must(t, err)
	defer d.Close()
	if _, err := d.Create(name, 0o600); !errors.Is(err, fs.ErrExist) {
		t.Errorf("makes what a link has the name of: %v", err)
	}
	if _, err := d.OpenFile(name, os.O_RDWR); !errors.Is(err, unix.ELOOP) {
		t.Errorf("opens what a link leads to: %v", err)
	}
	testenv.Must(t, errors.Join(os.Rename(mallory, mallory+"2"), os.Symlink(etc, mallory)))
	f, err := d.Create("secret", 0o600) // in the directory that is mallory2 by now
	testenv.Must(t, err)
	testenv.Check(t, errors.Join(f.Close(), d.Rename("secret", "another"), d.Remove("another")))
	if b, err := os.ReadFile(secret); string(b) != "root's" {
		t.Errorf("%q: %v", b, err)
	}
}
