package nvme

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// refuse opens a device that must be refused, and then with Force. With Filled a device may have
// contents, but must not be in use.
func refuse(t *testing.T, path string, want error, says string) {
	t.Helper()
	to, err := OpenTarget(TargetConfig{Path: path})
	if err == nil {
		to.Close()
		t.Errorf("%s (%s) was opened", path, says)
	} else if !errors.Is(err, want) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "force") {
		t.Errorf("%s (%s): %v", path, says, err)
	}
	if to, err = OpenTarget(TargetConfig{Path: path, Filled: true}); err == nil {
		to.Close()
	}
	if filled := want == ErrDeviceNotEmpty; filled != (err == nil) || !filled && !errors.Is(err, want) {
		t.Errorf("%s (%s), with something on it: %v", path, says, err)
	}
	for _, c := range []TargetConfig{{Path: path, Force: true}, {Path: path, ReadOnly: true}} {
		if to, err = OpenTarget(c); err != nil {
			t.Errorf("%+v: %v", c, err)
		} else if err := to.Close(); err != nil {
			t.Error(err)
		}
	}
}

func run(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(testenv.Tool(t, name), args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// TestMounted: a mounted device is refused, and the error names the mount point.
func TestMounted(t *testing.T) {
	dir := testenv.Ext4(t, 2<<20)
	refuse(t, deviceOf(t, dir), ErrDeviceInUse, "mounted on "+dir)
}

// deviceOf returns the path of the device mounted at dir.
func deviceOf(t testing.TB, dir string) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	testenv.Must(t, err)
	for line := range strings.Lines(string(text)) {
		if _, place, source, ok := parseMount(line); ok && place == dir {
			return source
		}
	}
	t.Fatalf("nothing is mounted at %s", dir)
	return ""
}

// TestSwapSpace: a device with swap space is refused, whether it is in use or not.
func TestSwapSpace(t *testing.T) {
	dev := testenv.Loop(t, testenv.DiskFile(t, 1<<20), 0)
	run(t, "mkswap", dev)
	refuse(t, dev, ErrDeviceNotEmpty, "swap space")
	run(t, "swapon", dev)
	defer run(t, "swapoff", dev)
	refuse(t, dev, ErrDeviceInUse, "swap space")
}

// TestFileSystem: a device with a file system that is not mounted is refused.
func TestFileSystem(t *testing.T) {
	dev := testenv.Zram(t, 4<<20)
	if to, err := OpenTarget(TargetConfig{Path: dev}); err != nil {
		t.Fatalf("an empty device: %v", err)
	} else {
		to.Close()
	}
	run(t, "mkfs.ext4", "-q", dev)
	refuse(t, dev, ErrDeviceNotEmpty, "ext4 file system")
	refuse(t, dev, ErrDeviceNotEmpty, "wipefs --all "+dev)
	run(t, "wipefs", "--all", "--quiet", dev)
	if to, err := OpenTarget(TargetConfig{Path: dev}); err != nil {
		t.Errorf("after wipefs: %v", err)
	} else {
		to.Close()
	}
}

// TestPartitions: a device is refused if the kernel knows partitions on it, or if it has a
// partition table that the kernel has not read.
func TestPartitions(t *testing.T) {
	file := testenv.DiskFile(t, 4<<20)
	sector := make([]byte, 512)
	copy(sector[446:], []byte{0, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0}) // 1 MiB from 1 MiB
	sector[510], sector[511] = 0x55, 0xaa
	testenv.Must(t, writeAt(file, sector, 0))
	dev := testenv.Loop(t, file, 0)
	refuse(t, dev, ErrDeviceNotEmpty, "MBR partition table")
	addPartition(t, dev)
	refuse(t, dev, ErrDeviceNotEmpty, "it has 1 partitions")

	dir := t.TempDir()
	run(t, "mkfs.ext4", "-q", dev+"p1")
	testenv.Must(t, unix.Mount(dev+"p1", dir, "ext4", 0, ""))
	defer unix.Unmount(dir, 0)
	refuse(t, dev, ErrDeviceInUse, "mounted on "+dir)
}

// addPartition adds the one partition of a loop device to the kernel. Not every kernel reads
// partition tables of this kind itself.
func addPartition(t testing.TB, dev string) {
	t.Helper()
	f, err := os.Open(dev)
	testenv.Must(t, err)
	defer f.Close()
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err == nil {
		info.Flags |= unix.LO_FLAGS_PARTSCAN
		err = unix.IoctlLoopSetStatus64(int(f.Fd()), info)
	}
	testenv.Must(t, err)
	if _, err := os.Stat(dev + "p1"); err != nil {
		run(t, "addpart", dev, "1", "2048", "2048")
	}
	t.Cleanup(func() { run(t, "delpart", dev, "1") })
	testenv.Wait(t, 5*time.Second, dev+"p1", func() bool { _, err := os.Stat(dev + "p1"); return err == nil })
}

func writeAt(path string, b []byte, off int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(b, off)
	return err
}

// TestClaimed: a device that another program or another target has opened exclusively is refused.
func TestClaimed(t *testing.T) {
	dev := testenv.Zram(t, 1<<20)
	first := mustOpen(t, TargetConfig{Path: dev})
	refuse(t, dev, ErrDeviceInUse, "claimed")
	testenv.Must(t, first.Close())
	mustOpen(t, TargetConfig{Path: dev}).Close()
}

// TestReadOnlyDevice: a read-only device is refused for writing.
func TestReadOnlyDevice(t *testing.T) {
	dev := testenv.Loop(t, testenv.DiskFile(t, 1<<20), 0)
	run(t, "blockdev", "--setro", dev)
	defer run(t, "blockdev", "--setrw", dev) // the device keeps the setting after it is detached
	if _, err := OpenTarget(TargetConfig{Path: dev}); !errors.Is(err, ErrDeviceReadOnly) || !strings.Contains(err.Error(), "blockdev --setrw "+dev) {
		t.Errorf("a read-only device: %v", err)
	}
	mustOpen(t, TargetConfig{Path: dev, ReadOnly: true}).Close()
}

// TestSmallDevice: a device that is too small is refused.
func TestSmallDevice(t *testing.T) {
	dev := testenv.Zram(t, 1<<20)
	if _, err := OpenTarget(TargetConfig{Path: dev, Size: 1<<20 + 1}); !errors.Is(err, ErrDeviceTooSmall) || !strings.Contains(err.Error(), "1048577 are needed") {
		t.Errorf("a small device: %v", err)
	}
	mustOpen(t, TargetConfig{Path: dev, Size: 1 << 20}).Close()
}

// TestSignatures: every signature, alone and at its place, is found without blkid.
func TestSignatures(t *testing.T) {
	const size = 1<<20 + 8192
	for _, s := range append(knownSignatures, tailSignatures(size)...) {
		off := s.offset
		if off < 0 {
			off += size
		}
		path := testenv.DiskFile(t, size)
		testenv.Must(t, writeAt(path, []byte(s.magic), off))
		if found, err := signatures(path, size); err != nil || len(found) != 1 || found[0] != s.name {
			t.Errorf("%s at %d: found %q, %v", s.name, s.offset, found, err)
		}
	}
	path := testenv.DiskFile(t, size)
	if found, err := signatures(path, size); err != nil || len(found) != 0 {
		t.Errorf("nothing: found %q, %v", found, err)
	}
	if found, err := signatures(testenv.DiskFile(t, 512), 512); err != nil || len(found) != 0 {
		t.Errorf("a tiny device: found %q, %v", found, err)
	}
}

// TestBlkid: the output of blkid is parsed correctly.
func TestBlkid(t *testing.T) {
	got := blkidFound("DEVNAME=/dev/x\nPTTYPE=gpt\nTYPE=zfs_member\nUSAGE=raid\n")
	if want := "[a partition table of type gpt zfs_member (as blkid calls it)]"; want != "["+strings.Join(got, " ")+"]" {
		t.Errorf("%q", got)
	}
	path := testenv.DiskFile(t, 4<<20)
	run(t, "mkfs.ext4", "-q", "-F", path)
	if got, err := blkid(path); err != nil || len(got) != 1 || !strings.HasPrefix(got[0], "ext4") {
		t.Errorf("an ext4 file system: %q, %v", got, err)
	}
}

// FuzzMountinfo: parseMount does not panic on any line.
func FuzzMountinfo(f *testing.F) {
	f.Add("36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw")
	f.Add("36 35 98 / / - ")
	f.Fuzz(func(t *testing.T, line string) {
		if _, place, _, ok := parseMount(line); ok && place == "" {
			t.Errorf("%q is mounted nowhere", line)
		}
	})
}
