package nvme

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/counter"
)

// stats are the queue's counters. Only its thread writes them, and publishes the numbers once per batch.
type stats struct {
	counter.Published[Counts]
	errnos   [maxErrno + 1]atomic.Uint64
	statuses [statusBits + 1]atomic.Uint64
}

func (c *Counts) add(o *op, n uint64, direct bool) {
	if o.kind == reading {
		c.BytesRead += n
	} else {
		c.BytesWritten += n
	}
	if !direct {
		c.Copied += n
	}
}

// maxErrno is the highest errno with its own counter. The kernel's internal ones beyond it share
// that counter. It is EHWPOISON of include/uapi/asm-generic/errno.h.
const maxErrno = 133

func (s *stats) failed(errno unix.Errno) { s.errnos[min(errno, maxErrno)].Add(1) }

func (s *stats) answered(status Status) { s.statuses[status&statusBits].Add(1) }

// publish publishes the numbers that changed.
func (s *stats) publish(q *Queue) {
	s.Own.InFlight = uint64(q.inFlight)
	s.Publish()
}

// Counts are numbers of a queue since Open. An operation counts when it completes, even if it fails.
type Counts struct {
	Reads, Writes, Flushes  uint64 // operations
	Discards, Zeroings      uint64 // operations
	BytesRead, BytesWritten uint64 // bytes transferred
	Copied                  uint64 // of these, bytes that the kernel copied: targets without direct I/O
	Short                   uint64 // transfers continued: the kernel cut them short, or they exceed a command of a node
	Pinned                  uint64 // chains whose pages the kernel pinned
	Again                   uint64 // operations submitted again because the kernel gave them up before they began
	Enters                  uint64 // io_uring_enter system calls
	InFlight                uint64 // operations that the kernel has now
}

// Stats are a queue's counters.
type Stats struct {
	Counts
	Errors   map[unix.Errno]uint64 // failed operations by cause
	Statuses map[Status]uint64     // failed commands by the status of a node's disk
}

// Stats reads the counters. Any goroutine may call it.
func (q *Queue) Stats() Stats {
	s := &q.stats
	out := Stats{s.Load(), make(map[unix.Errno]uint64), make(map[Status]uint64)}
	for i := range s.errnos {
		if n := s.errnos[i].Load(); n > 0 {
			out.Errors[unix.Errno(i)] = n
		}
	}
	for i := range s.statuses {
		if n := s.statuses[i].Load(); n > 0 {
			out.Statuses[Status(i)] = n
		}
	}
	return out
}

// Status is an NVMe disk's answer to a command that failed: the status code type above eight bits
// of status code. It is an error.
type Status uint16

// statusBits are the bits of the Status in the kernel's result. The other bits say that more
// information exists, or that a retry is useless.
const statusBits = 0x7ff

// statusTexts are the names in the NVM Express base specification, figures "Status Code", of those
// that reads and writes may meet.
var statusTexts = map[Status]string{
	0x001: "invalid command opcode", 0x002: "invalid field in the command", 0x004: "data transfer error", 0x005: "aborted by a loss of power",
	0x006: "internal error", 0x007: "aborted on request", 0x008: "aborted with its queue", 0x00b: "invalid namespace or format",
	0x013: "invalid address of the data", 0x015: "operation denied", 0x020: "the namespace is write protected", 0x021: "interrupted, try again",
	0x080: "block address out of range", 0x081: "capacity exceeded", 0x082: "the namespace is not ready", 0x083: "reservation conflict",
	0x084: "a format is in progress", 0x180: "conflicting attributes", 0x182: "write to a read-only range",
	0x280: "write fault", 0x281: "unrecovered read error", 0x282: "guard check failed", 0x285: "compare failed", 0x286: "access denied",
	0x287: "deallocated or unwritten block", 0x300: "internal path error", 0x370: "the host gave up on the path", 0x371: "aborted by the host",
}

func (s Status) Error() string {
	if text := statusTexts[s]; text != "" {
		return fmt.Sprintf("the disk answers: %s (NVMe status %#x)", text, uint16(s))
	}
	return fmt.Sprintf("the disk answers with NVMe status %#x", uint16(s))
}

// Is reports whether target is the errno that frames carry for the status.
func (s Status) Is(target error) bool { return target == error(s.errno()) }

// errno returns the errno for the status in a frame. It is the one of the kernel's own block driver
// (nvme_error_status in drivers/nvme/host/core.c), except for EIO if the medium failed: ENODATA
// means the end of the target here.
func (s Status) errno() unix.Errno {
	switch s {
	case 0x001, 0x002, 0x00b, 0x180:
		return unix.EOPNOTSUPP
	case 0x080, 0x081:
		return unix.ENOSPC
	case 0x020, 0x182:
		return unix.EROFS
	case 0x015, 0x286:
		return unix.EACCES
	case 0x083:
		return unix.EBADE
	case 0x282, 0x285:
		return unix.EILSEQ
	}
	return unix.EIO
}

// What may happen to an open target.
var (
	// ErrDeviceGone is matched if the target's disk no longer exists.
	ErrDeviceGone = errors.New("the disk is gone")
	// ErrReadOnlyFileSystem is matched if the target's file system does not allow writes.
	ErrReadOnlyFileSystem = errors.New("the file system is read-only")
)

// readOnlyMount is ST_RDONLY, of statfs(2).
const readOnlyMount = 1

// Health returns why an open target can no longer be written, as far as the kernel knows: its disk
// is gone, is smaller, or has become read-only. Nil means that no such cause is known, not that
// the disk works. Health does not wait for a disk, but may wait for the server of a network file
// system. Any goroutine may call it.
//
// A write to a block device that is gone fails with ENOSPC, because the device has no bytes left.
func (t *Target) Health() error {
	if t.block || t.node != nil {
		return t.deviceHealth(t.BlockFD())
	}
	return t.fileHealth()
}

// deviceHealth checks the block device, if there is one.
func (t *Target) deviceHealth(fd int) error {
	if fd < 0 {
		return nil
	}
	size, err := deviceSize(fd)
	if err != nil || size == 0 {
		return fmt.Errorf("%w (attach it again)", ErrDeviceGone)
	}
	if had := t.Size(); size < had {
		return fmt.Errorf("%w: it had %d bytes and has %d", ErrDeviceTooSmall, had, size)
	}
	if ro, err := unix.IoctlGetInt(fd, unix.BLKROGET); err == nil && int32(ro) != 0 {
		return fmt.Errorf("%w by now (run: blockdev --setrw %s; a disk that protects itself is to be replaced)", ErrDeviceReadOnly, t.path)
	}
	return nil
}

// fileHealth checks the device below the file, and the file system.
func (t *Target) fileHealth() error {
	var st unix.Stat_t
	if unix.Fstat(t.fd, &st) == nil && unix.Major(st.Dev) != 0 { // otherwise the file is not on a single device
		if _, err := os.Stat(sysDevice(st.Dev)); errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%w that its file system is on (attach it again and mount it)", ErrDeviceGone)
		}
	}
	var fs unix.Statfs_t
	if unix.Fstatfs(t.fd, &fs) == nil && fs.Flags&readOnlyMount != 0 {
		return fmt.Errorf("%w (the kernel's log says why; check it, and mount it for writing again)", ErrReadOnlyFileSystem)
	}
	return nil
}

// Measure asks for the size of the file or device as it is now. It may wait for the disk. Any goroutine may call it.
func (t *Target) Measure() (size uint64, err error) {
	if size, err = t.measureAgain(); err != nil {
		return 0, fmt.Errorf("ask for the size of %s: %w", t.path, err)
	}
	return size, nil
}

func (t *Target) measureAgain() (uint64, error) {
	switch {
	case t.block:
		return deviceSize(t.fd)
	case t.node != nil:
		var page [identifySize]byte
		if err := adminIdentify(t.fd, t.node.id, identifyNamespace, page[:]); err != nil {
			return 0, privileged(err)
		}
		ns := parseNamespace(page[:])
		if ns.shift != t.node.shift || ns.metadata != 0 || ns.blocks > 1<<62>>ns.shift {
			return 0, errors.New("the disk has another format than before (start the flow again)")
		}
		return ns.blocks << ns.shift, nil
	}
	var st unix.Stat_t
	err := unix.Fstat(t.fd, &st)
	return uint64(st.Size), err
}
