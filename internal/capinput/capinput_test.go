package capinput

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// some is data that compresses a little.
func some() []byte {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 3<<20)
	for i := range b {
		b[i] = byte(r.IntN(16))
	}
	return b
}

// TestOpen: Open decompresses the output of the usual tools, in one part and in two, whatever the file's name
// is. It opens a plain file as it is.
func TestOpen(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir, plain := t.TempDir(), some()
	file := filepath.Join(dir, "plain")
	testenv.Must(t, os.WriteFile(file, plain, 0o600))
	for _, tool := range [][]string{nil, {"gzip", "-c"}, {"zstd", "-c"}, {"zstd", "-c", "--long=27"}, {"lz4", "-c"}} {
		stored, want := plain, plain
		if tool != nil {
			one, err := exec.Command(tool[0], append(tool[1:], file)...).Output()
			testenv.Mustf(t, err, "%v", tool)
			stored, want = append(bytes.Clone(one), one...), append(bytes.Clone(plain), plain...)
		}
		name := filepath.Join(dir, "stored")
		testenv.Must(t, os.WriteFile(name, stored, 0o600))
		in, err := Open(t.Context(), name)
		testenv.Mustf(t, err, "%v", tool)
		got, err := io.ReadAll(in)
		if err != nil || !bytes.Equal(got, want) || in.Cut != nil || (in.Copied == 0) != (tool == nil) {
			t.Errorf("%v: %d bytes, want %d; %d copied, cut %v: %v", tool, len(got), len(want), in.Copied, in.Cut, err)
		}
		testenv.Check(t, in.Close())
	}
	empty(t, os.Getenv("TMPDIR"))
}

// empty checks that nothing is in a directory.
func empty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left in %s: %v, %v", dir, left, err)
	}
}

// TestCut: for a truncated file, the input has the data before the end, and Cut has the reason.
func TestCut(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	cmd := exec.Command("gzip", "-c")
	cmd.Stdin = bytes.NewReader(some())
	whole, err := cmd.Output()
	testenv.Must(t, err)
	name := filepath.Join(t.TempDir(), "cut.gz")
	testenv.Must(t, os.WriteFile(name, whole[:len(whole)/2], 0o600))
	in, err := Open(t.Context(), name)
	testenv.Must(t, err)
	defer in.Close()
	if got, _ := io.ReadAll(in); in.Cut == nil || len(got) < 1<<20 || !bytes.HasPrefix(some(), got) {
		t.Errorf("%d bytes, cut %v", len(got), in.Cut)
	}
	testenv.Must(t, os.WriteFile(name, []byte("\x1f\x8bnothing"), 0o600))
	if _, err := Open(t.Context(), name); err == nil || !strings.Contains(err.Error(), "decompress") {
		t.Errorf("no gzip: %v", err)
	}
}

// TestPipe: a pipe is read to its end; waiting for more ends with the context.
func TestPipe(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	name := filepath.Join(t.TempDir(), "fifo")
	testenv.Must(t, unix.Mkfifo(name, 0o600))
	go func() { _ = os.WriteFile(name, some(), 0) }()
	in, err := Open(t.Context(), name)
	testenv.Must(t, err)
	defer in.Close()
	if got, err := io.ReadAll(in); err != nil || !bytes.Equal(got, some()) {
		t.Errorf("%d bytes: %v", len(got), err)
	}
	w, err := os.OpenFile(name, os.O_RDWR, 0) // so that it never ends
	testenv.Must(t, err)
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := Open(ctx, name); err == nil || !strings.Contains(err.Error(), "deadline") {
		t.Errorf("without an end: %v", err)
	}
}

// TestNoRoom: a file that expands to more than the free space does not fill the disk.
func TestNoRoom(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Fatalf("mount a tmpfs: %v (the test needs root)", err)
	}
	defer func() {
		testenv.Checkf(t, unix.Unmount(dir, 0), "something is left open")
	}()
	t.Setenv("TMPDIR", dir)
	cmd := exec.Command("zstd", "-c")
	cmd.Stdin = io.LimitReader(zeros{}, 1<<30)
	small, err := cmd.Output()
	testenv.Must(t, err)
	name := filepath.Join(t.TempDir(), "zeros.zst")
	testenv.Must(t, os.WriteFile(name, small, 0o600))
	if _, err := Open(t.Context(), name); err == nil || !strings.Contains(err.Error(), "TMPDIR") {
		t.Errorf("1 GiB into 64 MiB: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// TestWindow: a small file that demands gigabytes to decompress is refused with the remedy, and takes no memory.
func TestWindow(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	name := filepath.Join(t.TempDir(), "wide")
	// A frame with a window of 2 GiB (RFC 8878, 3.1.1.1.2: exponent 21) and one raw block, the last one.
	testenv.Must(t, os.WriteFile(name, []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 21 << 3, 0x09, 0, 0, 'x'}, 0o600))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if in, err := Open(t.Context(), name); err == nil || !strings.Contains(err.Error(), "128 MiB") || !strings.Contains(err.Error(), "zstd -d --long=31") {
		t.Errorf("%v: %v", in, err)
	}
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 64<<20 {
		t.Errorf("it took %d bytes", after.TotalAlloc-before.TotalAlloc)
	}
	empty(t, os.Getenv("TMPDIR"))
}
