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

// refuse opens a device that must be refused, and then with Force. Filled takes what is not empty, and nothing that is in use.
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

// TestMounted refuses a mounted device, naming where.
func TestMounted(t *testing.T) {
	dir := testenv.Ext4(t, 2<<20)
	refuse(t, deviceOf(t, dir), ErrDeviceInUse, "mounted on "+dir)
}

// deviceOf is the path of the device mounted at dir.
func deviceOf(t testing.TB, dir string) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if _, place, source, ok := parseMount(line); ok && place == dir {
			return source
		}
	}
	t.Fatalf("nothing is mounted at %s", dir)
	return ""
}

// TestSwapSpace refuses a device that is swapped to, and one that could be.
func TestSwapSpace(t *testing.T) {
	dev := testenv.Loop(t, testenv.DiskFile(t, 1<<20), 0)
	run(t, "mkswap", dev)
	refuse(t, dev, ErrDeviceNotEmpty, "swap space")
	run(t, "swapon", dev)
	defer run(t, "swapoff", dev)
	refuse(t, dev, ErrDeviceInUse, "swap space")
}

// TestFileSystem refuses a device with a file system that is not mounted.
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

// TestPartitions refuses a device with partitions that the kernel knows, and
// with a partition table that it has not read.
func TestPartitions(t *testing.T) {
	file := testenv.DiskFile(t, 4<<20)
	sector := make([]byte, 512)
	copy(sector[446:], []byte{0, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0}) // 1 MiB from 1 MiB
	sector[510], sector[511] = 0x55, 0xaa
	if err := writeAt(file, sector, 0); err != nil {
		t.Fatal(err)
	}
	dev := testenv.Loop(t, file, 0)
	refuse(t, dev, ErrDeviceNotEmpty, "MBR partition table")
	addPartition(t, dev)
	refuse(t, dev, ErrDeviceNotEmpty, "it has 1 partitions")

	dir := t.TempDir()
	run(t, "mkfs.ext4", "-q", dev+"p1")
	if err := unix.Mount(dev+"p1", dir, "ext4", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dir, 0)
	refuse(t, dev, ErrDeviceInUse, "mounted on "+dir)
}

// addPartition tells the kernel of the one partition of a loop device; not
// every kernel reads partition tables of this kind itself.
func addPartition(t testing.TB, dev string) {
	t.Helper()
	f, err := os.Open(dev)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err == nil {
		info.Flags |= unix.LO_FLAGS_PARTSCAN
		err = unix.IoctlLoopSetStatus64(int(f.Fd()), info)
	}
	if err != nil {
		t.Fatal(err)
	}
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

// TestClaimed refuses a device that another program has opened exclusively, as
// a second target does.
func TestClaimed(t *testing.T) {
	dev := testenv.Zram(t, 1<<20)
	first := mustOpen(t, TargetConfig{Path: dev})
	refuse(t, dev, ErrDeviceInUse, "claimed")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, TargetConfig{Path: dev}).Close()
}

// TestReadOnlyDevice refuses a device that takes no writes.
func TestReadOnlyDevice(t *testing.T) {
	dev := testenv.Loop(t, testenv.DiskFile(t, 1<<20), 0)
	run(t, "blockdev", "--setro", dev)
	defer run(t, "blockdev", "--setrw", dev) // the device keeps it when it is detached
	if _, err := OpenTarget(TargetConfig{Path: dev}); !errors.Is(err, ErrDeviceReadOnly) || !strings.Contains(err.Error(), "blockdev --setrw "+dev) {
		t.Errorf("a read-only device: %v", err)
	}
	mustOpen(t, TargetConfig{Path: dev, ReadOnly: true}).Close()
}

// TestSmallDevice refuses one that is too small.
func TestSmallDevice(t *testing.T) {
	dev := testenv.Zram(t, 1<<20)
	if _, err := OpenTarget(TargetConfig{Path: dev, Size: 1<<20 + 1}); !errors.Is(err, ErrDeviceTooSmall) || !strings.Contains(err.Error(), "1048577 are needed") {
		t.Errorf("a small device: %v", err)
	}
	mustOpen(t, TargetConfig{Path: dev, Size: 1 << 20}).Close()
}

// TestSignatures puts every signature, alone, where its format has it, and
// looks without blkid's help.
func TestSignatures(t *testing.T) {
	const size = 1<<20 + 8192
	for _, s := range append(knownSignatures, tailSignatures(size)...) {
		off := s.offset
		if off < 0 {
			off += size
		}
		path := testenv.DiskFile(t, size)
		if err := writeAt(path, []byte(s.magic), off); err != nil {
			t.Fatal(err)
		}
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

// TestBlkid reads what blkid says.
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

// FuzzMountinfo takes lines of mountinfo apart, whatever they are.
func FuzzMountinfo(f *testing.F) {
	f.Add("36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw")
	f.Add("36 35 98 / / - ")
	f.Fuzz(func(t *testing.T, line string) {
		if _, place, _, ok := parseMount(line); ok && place == "" {
			t.Errorf("%q is mounted nowhere", line)
		}
	})
}
