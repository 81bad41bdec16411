package nvme

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Alignment is what direct I/O asks of requests, in bytes, powers of two.
type Alignment struct {
	Memory uint32 // of the address of each piece
	Offset uint32 // of the offset on the target and the length of each piece
}

func (a Alignment) String() string {
	return fmt.Sprintf("memory %d, offset and length %d bytes", a.Memory, a.Offset)
}

// findAlignment asks for the file's or device's size and what direct I/O wants
// there: statx(2) STATX_DIOALIGN, Linux 6.1, and for file systems that do not
// answer it, what is always enough.
func (t *Target) findAlignment(buffered bool) error {
	var st unix.Statx_t
	if err := unix.Statx(t.fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_DIOALIGN, &st); err != nil {
		return fmt.Errorf("ask for the alignment of direct I/O: %w", err)
	}
	if !t.block {
		t.size = st.Size
	}
	switch {
	case !t.direct:
	case st.Mask&unix.STATX_DIOALIGN != 0:
		t.align = Alignment{Memory: st.Dio_mem_align, Offset: st.Dio_offset_align}
	default:
		if err := t.guessAlignment(); err != nil {
			return err
		}
	}
	if t.align.Memory == 0 || t.align.Offset == 0 {
		return t.withoutDirect(buffered)
	}
	return t.align.check()
}

// check rejects what is no power of two, which a file system may say.
func (a Alignment) check() error {
	if a.Memory&(a.Memory-1) != 0 || a.Offset&(a.Offset-1) != 0 {
		return fmt.Errorf("the file system asks for an alignment that is no power of two: %v", a)
	}
	return nil
}

// withoutDirect goes on buffered where that is allowed.
func (t *Target) withoutDirect(buffered bool) error {
	if !buffered {
		return t.noDirect()
	}
	if _, err := unix.FcntlInt(uintptr(t.fd), unix.F_SETFL, 0); err != nil {
		return fmt.Errorf("turn off direct I/O: %w", err)
	}
	t.direct, t.align = false, Alignment{Memory: 1, Offset: 1}
	return nil
}

// guessAlignment is for what does not report it: the logical block of a device,
// the block size of a file system on a disk. File systems in memory take O_DIRECT
// since 6.6 but copy all the same; they are left without an alignment.
func (t *Target) guessAlignment() error {
	if t.block {
		return t.deviceAlignment()
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(t.fd, &fs); err != nil {
		return fmt.Errorf("ask for the block size of the file system: %w", err)
	}
	switch fs.Type {
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC, unix.HUGETLBFS_MAGIC:
		return nil
	}
	block := uint32(max(fs.Bsize, 512))
	t.align = Alignment{Memory: block, Offset: block}
	return nil
}

// deviceAlignment asks the device: BLKSSZGET, and the queue's dma_alignment
// (Documentation/ABI/stable/sysfs-block) where this kernel shows it.
func (t *Target) deviceAlignment() error {
	block, err := unix.IoctlGetInt(t.fd, unix.BLKSSZGET)
	if err != nil {
		return fmt.Errorf("ask for the logical block size: %w", err)
	}
	t.align = Alignment{Memory: uint32(block), Offset: uint32(block)}
	text, err := os.ReadFile(filepath.Join(sysDevice(t.number), "queue/dma_alignment"))
	if err != nil {
		return nil
	}
	if mask, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 31); err == nil {
		t.align.Memory = uint32(mask) + 1
	}
	return nil
}

// fileSystem describes what a path lies on, for people.
func fileSystem(path string) string {
	var fs unix.Statfs_t
	if unix.Statfs(path, &fs) != nil && unix.Statfs(filepath.Dir(path), &fs) != nil {
		return "this file system"
	}
	names := map[int64]string{unix.TMPFS_MAGIC: "tmpfs", unix.RAMFS_MAGIC: "ramfs", unix.HUGETLBFS_MAGIC: "hugetlbfs",
		unix.PROC_SUPER_MAGIC: "proc", unix.SYSFS_MAGIC: "sysfs", unix.V9FS_MAGIC: "9p"}
	if name := names[int64(fs.Type)]; name != "" {
		return name
	}
	return fmt.Sprintf("a file system of type %#x", fs.Type)
}
