package nvme

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Limits are the limits that a target's device reports, in bytes. Zero means that the device does
// not report the limit, or has no such feature. For a file on a file system that spans devices all
// are zero. They come from Documentation/ABI/stable/sysfs-block. For a passthrough node they come
// from the disk's own identify data.
type Limits struct {
	Logical  uint64 // the smallest block the device addresses
	Physical uint64 // the smallest block that it writes without reading
	Transfer uint64 // the most that one command moves; more becomes several commands
	Segments uint64 // the largest number of memory pieces of a command
	Boundary uint64 // pieces of a command may meet only at multiples of it in memory; 1: anywhere
	Discard  uint64 // the granularity of discards; 0: not supported
	Zeroes   uint64 // the most that one command zeroes; 0: the kernel writes zeros
	FUA      bool   // a write can be durable by itself
	Cache    bool   // it has a volatile cache
}

// readLimits reads the attributes of a block device's queue.
func readLimits(queue string) Limits {
	n := func(name string) uint64 { return readNumber(filepath.Join(queue, name)) }
	l := Limits{Logical: n("logical_block_size"), Physical: n("physical_block_size"), Transfer: n("max_hw_sectors_kb") << 10,
		Segments: n("max_segments"), Boundary: n("virt_boundary_mask") + 1, Zeroes: n("write_zeroes_max_bytes"),
		FUA: n("fua") == 1, Cache: readLine(filepath.Join(queue, "write_cache")) == "write back"}
	if n("discard_max_bytes") > 0 {
		l.Discard = n("discard_granularity")
	}
	return l
}

// readNumber returns the number in a small file, zero if there is none.
func readNumber(path string) uint64 {
	n, err := strconv.ParseUint(readLine(path), 10, 63)
	if err != nil {
		return 0
	}
	return n
}

// queueOf returns the queue directory in sysfs of a block device, or of the disk that it is a
// partition of. It is empty if there is none.
func queueOf(number uint64) string {
	dir, err := filepath.EvalSymlinks(sysDevice(number))
	if err != nil {
		return ""
	}
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if st, err := os.Stat(filepath.Join(d, "queue")); err == nil && st.IsDir() {
			return filepath.Join(d, "queue")
		}
	}
	return ""
}

// findLimits reads the limits of the device that the target is or is on. It refuses zoned devices,
// which accept writes only in order.
func (t *Target) findLimits() error {
	number := t.number
	if !t.block {
		var st unix.Stat_t
		if err := unix.Fstat(t.fd, &st); err != nil {
			return err
		}
		number = uint64(st.Dev)
	}
	queue := queueOf(number)
	if queue == "" {
		return nil
	}
	t.limits = readLimits(queue)
	if t.block {
		return refuseZoned(queue)
	}
	return nil
}

// refuseZoned refuses a device whose zones must be written in order.
func refuseZoned(queue string) error {
	if zoned := readLine(filepath.Join(queue, "zoned")); zoned != "" && !strings.HasPrefix(zoned, "none") {
		return &NotSupportedError{fmt.Sprintf("a zoned device (%s)", zoned), "use one without zones, or a file on a file system that knows them"}
	}
	return nil
}

// Limits returns the limits of the target's device.
func (t *Target) Limits() Limits { return t.limits }

// Alignment is what direct I/O requires of requests, in bytes. All values are powers of two.
type Alignment struct {
	Memory uint32 // of the address of each piece
	Offset uint32 // of the offset on the target and the length of each piece
}

func (a Alignment) String() string {
	return fmt.Sprintf("memory %d, offset and length %d bytes", a.Memory, a.Offset)
}

// findAlignment reads the size of the file or device and its alignment for direct I/O: statx(2)
// STATX_DIOALIGN, Linux 6.1. For file systems that do not report it, it uses an alignment that is
// always enough.
func (t *Target) findAlignment(buffered bool) error {
	var st unix.Statx_t
	if err := unix.Statx(t.fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_DIOALIGN, &st); err != nil {
		return fmt.Errorf("ask for the alignment of direct I/O: %w", err)
	}
	if !t.block {
		t.size.Store(st.Size)
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

// check rejects a value that is not a power of two, which a file system may report.
func (a Alignment) check() error {
	if a.Memory&(a.Memory-1) != 0 || a.Offset&(a.Offset-1) != 0 {
		return fmt.Errorf("the file system asks for an alignment that is no power of two: %v", a)
	}
	return nil
}

// withoutDirect falls back to buffered I/O if that is allowed.
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

// guessAlignment is for targets that do not report an alignment. It uses the logical block of a
// device, or the block size of a file system on a disk. File systems in memory accept O_DIRECT
// since 6.6, but still copy; they get no alignment.
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

// deviceAlignment reads the device's alignment: BLKSSZGET, and the queue's dma_alignment
// (Documentation/ABI/stable/sysfs-block) if this kernel has it.
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

// fileSystem names the file system of a path for people.
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

// feature is something that only newer kernels have, and that the Queue can do without.
type feature uint32

const (
	featureNoMmap       feature = 1 << iota // rings in the caller's memory, 6.5
	featureNoSQArray                        // no index array, 6.6
	featureDefer                            // completions handled when asked for, 6.1
	featureGatherFixed                      // READV_FIXED and WRITEV_FIXED, 6.15
	featureDeviceMemory                     // a device's memory registered, 6.5
)

// Granted has the features that the kernel granted a queue.
type Granted struct {
	RingsInRegion bool // the rings are in the region's control area, else in the kernel's memory
	NoIndexArray  bool // submissions need no index array
	DeferTaskrun  bool // completions are handled on request, else whenever the thread enters the kernel
	Region        bool // the region is registered, else its pages are pinned for each operation: that of a device before 6.5
	Outside       bool // memory outside the region is registered, else the pages of a block are pinned for each write
	GatherFixed   bool // chains use registered memory, else their pages are pinned each time
}

func (g Granted) String() string {
	rings := "kernel memory"
	if g.RingsInRegion {
		rings = "the region"
	}
	gather := "pages pinned per chain"
	switch {
	case !g.Region:
		gather = "pages pinned per operation, as all others"
	case g.GatherFixed:
		gather = "registered memory"
	}
	return fmt.Sprintf("rings in %s, chains from %s, deferred completions %t", rings, gather, g.DeferTaskrun)
}

// ErrNotSupported is matched by every error that says that the kernel, or the device or file system
// of a target, lacks a required feature.
var ErrNotSupported = errors.New("not supported")

// NotSupportedError says what is missing and what to do about it. It matches ErrNotSupported.
type NotSupportedError struct {
	Feature string // what is missing
	Remedy  string // what to do about it
}

func (e *NotSupportedError) Error() string {
	return fmt.Sprintf("%s is not supported here (%s)", e.Feature, e.Remedy)
}

// Is reports whether target is ErrNotSupported.
func (e *NotSupportedError) Is(target error) bool { return target == ErrNotSupported }
