package nvme

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// mustOpen opens a target. The end of the test closes it.
func mustOpen(t testing.TB, c TargetConfig) *Target {
	t.Helper()
	to, err := OpenTarget(c)
	testenv.Must(t, err)
	t.Cleanup(func() { to.Close() })
	return to
}

// TestAlignment: the kernel accepts a write in the smallest unit that a target reports. On a device
// it refuses a smaller one.
func TestAlignment(t *testing.T) {
	for _, k := range kinds {
		to := mustOpen(t, k.config(t, 1<<20))
		a := to.Alignment()
		if !to.Direct() || to.Block() != (k.name != "file") || to.Size() != 1<<20 || a.Memory < 1 || a.Offset < 512 {
			t.Errorf("%s: direct %t, block device %t, %d bytes, %v", k.name, to.Direct(), to.Block(), to.Size(), a)
		}
		if k.name == "zram" && a.Offset != 4096 || k.name == "loop" && a.Offset != 512 {
			t.Errorf("%s: %v", k.name, a)
		}
		mem, err := unix.Mmap(-1, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		testenv.Must(t, err)
		defer unix.Munmap(mem)
		if _, err := unix.Pwrite(to.FD(), mem[a.Memory&0xfff:][:a.Offset], int64(a.Offset)); err != nil {
			t.Errorf("%s: a write of %d bytes: %v", k.name, a.Offset, err)
		}
		if _, err := unix.Pwrite(to.FD(), mem[:a.Offset/2], 0); err == nil {
			t.Errorf("%s: a write of %d bytes was accepted", k.name, a.Offset/2)
		}
	}
}

// TestGuessAlignment: the alignment is right without STATX_DIOALIGN.
func TestGuessAlignment(t *testing.T) {
	for _, k := range kinds {
		to := mustOpen(t, k.config(t, 1<<20))
		asked := to.align
		testenv.Must(t, to.guessAlignment())
		if g := to.align; g.Memory < asked.Memory || g.Offset < asked.Offset || g.Offset%asked.Offset != 0 {
			t.Errorf("%s: guessed %v, the kernel says %v", k.name, g, asked)
		}
	}
	for _, a := range []Alignment{{3, 512}, {512, 3}} {
		if a.check() == nil {
			t.Errorf("%v is accepted", a)
		}
	}
}

// TestPrepare: each preparation leaves the expected extents.
func TestPrepare(t *testing.T) {
	const size = 3<<20 + 512
	for _, c := range []struct {
		how       Preparation
		size      int64
		unwritten bool
	}{{PrepareNone, 0, false}, {PrepareAllocate, size, true}, {PrepareZero, size, false}} {
		path := testenv.DiskDir(t) + "/f"
		to := mustOpen(t, TargetConfig{Path: path, Create: true, Exclusive: true, Size: size, Prepare: c.how})
		if got := sizeOf(t, path); got != c.size || to.Size() != uint64(c.size) {
			t.Errorf("%v: the file has %d bytes, the target says %d", c.how, got, to.Size())
		}
		out, err := exec.Command(testenv.Tool(t, "filefrag"), "-v", path).Output()
		testenv.Must(t, err)
		if got := strings.Contains(string(out), "unwritten"); got != c.unwritten {
			t.Errorf("%v: unwritten extents %t\n%s", c.how, got, out)
		}
	}
}

// TestPrepareKeeps: preparation keeps the existing contents of a file.
func TestPrepareKeeps(t *testing.T) {
	for _, how := range []Preparation{PrepareAllocate, PrepareZero} {
		path := testenv.DiskDir(t) + "/f"
		content := make([]byte, 5000)
		fillRandom(content, 9)
		testenv.Must(t, os.WriteFile(path, content, 0o600))
		mustOpen(t, TargetConfig{Path: path, Size: 1 << 20, Prepare: how})
		got, err := os.ReadFile(path)
		if err != nil || len(got) != 1<<20 || !bytes.Equal(got[:5000], content) || !allZero(got[5000:]) {
			t.Errorf("%v: %d bytes, %v", how, len(got), err)
		}
		mustOpen(t, TargetConfig{Path: path, Size: 4096, Prepare: how})
		if n := sizeOf(t, path); n != 1<<20 {
			t.Errorf("%v: preparing for less left %d bytes", how, n)
		}
	}
}

// TestTargetMistakes: OpenTarget refuses each mistake with its cause, and leaves no file behind.
func TestTargetMistakes(t *testing.T) {
	dir := testenv.DiskDir(t)
	there := dir + "/there"
	testenv.Must(t, os.WriteFile(there, nil, 0o600))
	small := testenv.Ext4(t, 2<<20)
	for _, c := range []struct {
		name string
		c    TargetConfig
		want error
		says string
	}{
		{"missing", TargetConfig{Path: dir + "/x"}, unix.ENOENT, dir + "/x"},
		{"no directory", TargetConfig{Path: dir + "/x/y", Create: true}, unix.ENOENT, "/x/y"},
		{"exclusive", TargetConfig{Path: there, Create: true, Exclusive: true}, unix.EEXIST, there},
		{"exclusive device", TargetConfig{Path: "/dev/loop0", Create: true, Exclusive: true}, unix.EEXIST, "/dev/loop0"},
		{"directory", TargetConfig{Path: dir}, nil, "neither a file nor a block device"},
		{"character device", TargetConfig{Path: "/dev/null"}, nil, "neither a file nor a block device"},
		{"odd size", TargetConfig{Path: dir + "/x", Create: true, Size: 1000, Prepare: PrepareZero}, nil, "multiple of"},
		{"no size", TargetConfig{Path: dir + "/x", Create: true, Prepare: PrepareAllocate}, nil, "multiple of"},
		{"unknown preparation", TargetConfig{Path: dir + "/x", Create: true, Size: 512, Prepare: 9}, nil, "none, allocate and zero"},
		{"read-only preparation", TargetConfig{Path: there, ReadOnly: true, Size: 512, Prepare: PrepareAllocate}, nil, "reading only"},
		{"full disk", TargetConfig{Path: small + "/x", Create: true, Size: 64 << 20, Prepare: PrepareZero}, unix.ENOSPC, "bytes free"},
		{"memory", TargetConfig{Path: "/dev/shm/unifiedd-x", Create: true}, ErrNoDirectIO, "tmpfs"},
		{"memory, as a kind", TargetConfig{Path: "/dev/shm/unifiedd-x", Create: true}, ErrNotSupported, "such as ext4 or XFS"},
	} {
		to, err := OpenTarget(c.c)
		if err == nil {
			to.Close()
			t.Errorf("%s: it was opened", c.name)
			continue
		}
		if c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "open target "+c.c.Path) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	for _, pattern := range []string{dir + "/x", small + "/x", "/dev/shm/unifiedd-x"} {
		if left, _ := filepath.Glob(pattern); len(left) > 0 {
			t.Errorf("%v was left behind", left)
		}
	}
}

// TestBuffered: with Buffered a queue writes to a file system without direct I/O, and counts the
// bytes that the kernel copies.
func TestBuffered(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{})
	path := "/dev/shm/unifiedd-" + filepath.Base(testenv.DiskDir(t)) + ".test"
	defer os.Remove(path)
	to, i := r.open(TargetConfig{Path: path, Create: true, Exclusive: true, Buffered: true})
	if to.Direct() || to.Alignment() != (Alignment{1, 1}) {
		t.Errorf("direct %t, %v", to.Direct(), to.Alignment())
	}
	fs := chained(r.take(2))
	fs[0].Addr, fs[0].Len, fs[1].Len = fs[0].Addr+3, 1001, 7
	r.fill(fs[0], 1)
	r.fill(fs[1], 2)
	want := append(bytes.Clone(r.region.Bytes(fs[0])), r.region.Bytes(fs[1])...)
	r.at(fs[0], i, 5)
	fs = r.read(r.write(fs))
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got[5:], want) {
		t.Errorf("the file has other bytes: %v", err)
	}
	if s := r.queue.Stats(); s.Copied != 2*1008 || s.BytesWritten != 1008 {
		t.Errorf("counters: %+v", s)
	}
	r.hands.Give(fs)

	direct := mustOpen(t, TargetConfig{Path: testenv.DiskDir(t) + "/f", Create: true, Buffered: true})
	if !direct.Direct() {
		t.Error("where there is direct I/O, Buffered turned it off")
	}
}

// TestReadOnlyTarget: a file without write permission opens with ReadOnly, and refuses writes.
func TestReadOnlyTarget(t *testing.T) {
	path := testenv.DiskDir(t) + "/f"
	testenv.Must(t, os.WriteFile(path, make([]byte, 8192), 0o400))
	to := mustOpen(t, TargetConfig{Path: path, ReadOnly: true, Create: true})
	if to.Size() != 8192 {
		t.Errorf("size %d", to.Size())
	}
	if _, err := unix.Pwrite(to.FD(), make([]byte, 1), 0); !errors.Is(err, unix.EBADF) {
		t.Errorf("it can be written to: %v", err)
	}
}
