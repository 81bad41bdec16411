package nvme

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/align"
)

// Preparation says how a file gets its blocks before it is written.
type Preparation uint8

const (
	// PrepareNone does nothing: the file grows while it is written.
	PrepareNone Preparation = iota
	// PrepareAllocate reserves the blocks (fallocate), so that writes cannot run out of space. On
	// ext4 the first write to each block still changes metadata. The kernel leaves that to one of
	// its threads, so writes do not stay inline.
	PrepareAllocate
	// PrepareZero reserves the blocks and writes zeros beyond the end of the file. Later writes then change
	// no metadata and stay inline. It takes as long as writing the file. Existing contents are kept.
	PrepareZero
)

func (p Preparation) String() string {
	switch p {
	case PrepareNone:
		return "none"
	case PrepareAllocate:
		return "allocate"
	case PrepareZero:
		return "zero"
	}
	return fmt.Sprintf("preparation %d", uint8(p))
}

// prepare brings a file to the configured size.
func (t *Target) prepare(c TargetConfig) error {
	if c.Prepare == PrepareNone || c.Size <= t.Size() && c.Prepare == PrepareZero {
		return nil
	}
	if c.Prepare > PrepareZero {
		return fmt.Errorf("%v is none of none, allocate and zero", c.Prepare)
	}
	if c.ReadOnly {
		return fmt.Errorf("prepare %d bytes: the target is opened for reading only", c.Size)
	}
	if c.Size == 0 || c.Size > 1<<62 || c.Size%uint64(t.align.Offset) != 0 {
		return fmt.Errorf("prepare %d bytes: the size must be a positive multiple of %d", c.Size, t.align.Offset)
	}
	from := t.Size()
	err := t.allocate(c.Size)
	if c.Prepare == PrepareZero && (err == nil || errors.Is(err, ErrNotSupported)) {
		err = t.zero(align.Up(from, uint64(t.align.Offset)), c.Size)
	}
	t.size.Store(max(from, c.Size))
	return err
}

// allocate reserves the file's blocks up to size.
func (t *Target) allocate(size uint64) error {
	for {
		err := unix.Fallocate(t.fd, 0, 0, int64(size))
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EOPNOTSUPP):
			return &NotSupportedError{"reserving blocks on " + fileSystem(t.path), "prepare by zero or not at all"}
		default:
			return fmt.Errorf("reserve %d bytes: %w", size, t.explainSpace(err))
		}
	}
}

// explainSpace adds how much space is free.
func (t *Target) explainSpace(err error) error {
	var fs unix.Statfs_t
	if errors.Is(err, unix.EFBIG) {
		return FileSizeLimit(err)
	}
	if !errors.Is(err, unix.ENOSPC) || unix.Fstatfs(t.fd, &fs) != nil {
		return err
	}
	return fmt.Errorf("%w (%d bytes free on the file system: make room or ask for less)", err, fs.Bavail*uint64(fs.Bsize))
}

// zeroChunk is the number of zero bytes per write.
const zeroChunk = 1 << 20

// zero writes zeros from one offset to another, both aligned, and makes them durable, including the
// metadata.
func (t *Target) zero(from, to uint64) error {
	zeros, err := unix.Mmap(-1, 0, zeroChunk, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("map zeros to write: %w", err)
	}
	defer unix.Munmap(zeros)
	for at := from; at < to; {
		n, err := unix.Pwrite(t.fd, zeros[:min(zeroChunk, to-at)], int64(at))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("write zeros at %d of %d bytes: %w", at, to, t.explainSpace(err))
		}
		at += uint64(max(n, 0))
	}
	return t.sync()
}

// sync makes the file durable.
func (t *Target) sync() error {
	for {
		err := unix.Fsync(t.fd)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("make %s durable: %w", t.path, err)
		}
	}
}

// FileSizeLimit adds to an error of a file that is too large what the limit is.
func FileSizeLimit(err error) error {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_FSIZE, &l) == nil && l.Cur != unix.RLIM_INFINITY {
		return fmt.Errorf("%w (files of this process may have %d bytes: raise LimitFSIZE, or ulimit -f)", err, l.Cur)
	}
	return fmt.Errorf("%w (the file system has no files as large)", err)
}
