package blocks

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/nvme"
)

// settled is how long a file must not have been written for its times to tell of the next write: they have the
// resolution of the kernel's clock tick.
const settled = time.Second

// local are the file systems whose times tell of every write by this machine, and that no other machine writes.
var local = map[int64]bool{unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.BTRFS_SUPER_MAGIC: true, unix.F2FS_SUPER_MAGIC: true}

// identityOf is the same at two moments since the machine's start if nobody has written the target in between. It
// is 0 if a write now would not change it. Of a target that can be written unnoticed it is an error.
func identityOf(t *nvme.Target) (id [32]byte, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(t.FD(), &st); err != nil {
		return id, fmt.Errorf("look at %s: %w", t.Path(), err)
	}
	var text string
	switch {
	case t.Passthrough():
		return id, fmt.Errorf("%s is an NVMe node, whose writes nobody counts: a cache with an index needs the block device", t.Path())
	case t.Block():
		if err = touch(t); err == nil {
			text, err = writesOf(st.Rdev, t.Size())
		}
	default:
		text, err = timesOf(t, &st)
	}
	if err != nil || text == "" {
		return id, err
	}
	return sha256.Sum256([]byte(text)), nil
}

// timesOf describes a file.
func timesOf(t *nvme.Target, st *unix.Stat_t) (string, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(t.FD(), &fs); err != nil {
		return "", fmt.Errorf("look at %s: %w", t.Path(), err)
	}
	if !local[int64(fs.Type)] {
		return "", fmt.Errorf("%s is on a file system of type %#x, where others may write it unnoticed: a cache with an index needs ext4, XFS, Btrfs or F2FS", t.Path(), fs.Type)
	}
	if time.Since(time.Unix(st.Ctim.Unix())) < settled { // also if the clock was set back since
		return "", nil
	}
	return fmt.Sprintf("file %d %d %d %d %d %v", st.Dev, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano(), fs.Fsid.Val), nil
}

// loopMajor is the major number of loop devices: LOOP_MAJOR in the kernel's include/uapi/linux/major.h.
const loopMajor = 7

// touch reads the beginning of a block device, so that a kernel that counts has something to count.
func touch(t *nvme.Target) error {
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS) // aligned, as direct reads need it
	if err != nil {
		return fmt.Errorf("map memory to read %s: %w", t.Path(), err)
	}
	defer unix.Munmap(page)
	if _, err := unix.Pread(t.FD(), page, 0); err != nil {
		return fmt.Errorf("read %s: %w", t.Path(), err)
	}
	return nil
}

// writesOf describes a block device, which somebody has read: which disks it is on, and what the kernel counts of writes to
// all of them. A disk that nobody seems to have read has no counts, whatever its settings say: each is read when the kernel
// finds it. An NVMe disk with native multipath is such a disk before Linux 6.4.
func writesOf(number, size uint64) (string, error) {
	var disks []string
	if err := addDisks(&disks, fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(number), unix.Minor(number))); err != nil {
		return "", err
	}
	text := fmt.Sprintf("device %d %d", number, size)
	for _, dir := range disks {
		number, err := os.ReadFile(filepath.Join(dir, "dev"))
		if err != nil {
			return "", err
		}
		if strings.HasPrefix(string(number), fmt.Sprint(loopMajor, ":")) {
			return "", fmt.Errorf("%s is a loop device, whose file may be written unnoticed: serve the file", filepath.Base(dir))
		}
		counts, err := os.ReadFile(filepath.Join(dir, "queue/iostats"))
		if err != nil || strings.TrimSpace(string(counts)) != "1" {
			return "", fmt.Errorf("the kernel does not count writes to %s: a cache with an index needs that (write 1 to %s/queue/iostats)", filepath.Base(dir), dir)
		}
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		words := strings.Fields(string(stat))
		if err == nil && len(words) < 11 {
			err = fmt.Errorf("%s/stat has %d numbers", dir, len(words))
		}
		if err != nil {
			return "", err
		}
		if words[0] == "0" {
			return "", fmt.Errorf("the kernel counts neither reads nor writes of %s: a cache with an index needs that (an NVMe disk with native multipath before Linux 6.4: boot with nvme_core.multipath=N)", filepath.Base(dir))
		}
		sequence, _ := os.ReadFile(filepath.Join(dir, "diskseq")) // Linux 5.15
		text += fmt.Sprintf(", %s %s: writes %s %s", number, sequence, words[4], words[6])
		if len(words) > 13 { // discards and the bytes of them: Documentation/block/stat.rst
			text += fmt.Sprintf(" discards %s %s", words[11], words[13])
		}
	}
	return text, nil
}

// addDisks adds the directories of the disks on which a device is: its own, that of a partition's disk, and those of
// the devices below it (LVM, MD). Writes that go past the device are counted there.
func addDisks(disks *[]string, dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "partition")); err == nil {
		dir = filepath.Dir(dir)
	}
	if slices.Contains(*disks, dir) {
		return nil
	}
	*disks = append(*disks, dir)
	below, err := os.ReadDir(filepath.Join(dir, "slaves"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, one := range below {
		if err := addDisks(disks, filepath.Join(dir, "slaves", one.Name())); err != nil {
			return err
		}
	}
	return nil
}
