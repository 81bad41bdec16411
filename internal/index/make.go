package index

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/newfile"
	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// Unfinished ended the names of unfinished indexes in earlier releases.
const Unfinished = ".new"

// errNotClosed is matched when a segment is still being written, or was left by a crash.
var errNotClosed = errors.New("the segment is not closed: it is being written, or a crash left it, and the next start of its capture recovers it")

// Maker makes the index of a segment file beside it, as Make does, and returns the processor time. It may use
// another process.
type Maker func(ctx context.Context, path string) (cpu time.Duration, err error)

// Make makes the index of a segment file, next to it, and replaces an existing one. beside says
// that a capture is running: Make then does not keep the segment in the page cache. If ctx ends,
// Make stops and leaves nothing.
func Make(ctx context.Context, path string, beside bool) (sum Summary, err error) {
	dir, name, err := newfile.Open(path)
	if err != nil {
		return sum, err
	}
	defer dir.Close()
	segment, err := os.Open(dir.Path(name))
	if err != nil {
		return sum, fmt.Errorf("open %s: %w", path, errors.Unwrap(err))
	}
	defer segment.Close()
	info, err := segment.Stat()
	if err != nil {
		return sum, err
	}
	head, err := pcapng.ReadHead(segment, info.Size())
	if err != nil {
		return sum, err
	}
	if done, err := pcapng.Finished(segment, info.Size()); err != nil {
		return sum, err
	} else if !done {
		return sum, errNotClosed
	}
	out, err := dir.Replace(name+Suffix, info.Mode().Perm())
	if err != nil {
		return sum, err
	}
	sum, err = build(ctx, out, segment, info.Size(), &head, beside)
	if err = errors.Join(err, sameOwner(out.File, info)); err != nil {
		return sum, errors.Join(err, out.Discard())
	}
	return sum, out.Commit()
}

// sameOwner gives a file the owner of another file, if they differ.
func sameOwner(f *os.File, of os.FileInfo) error {
	mine, err := f.Stat()
	if err != nil {
		return err
	}
	a, ok := mine.Sys().(*syscall.Stat_t)
	b, same := of.Sys().(*syscall.Stat_t)
	if !ok || !same || a.Uid == b.Uid && a.Gid == b.Gid {
		return nil
	}
	if err := f.Chown(int(b.Uid), int(b.Gid)); err != nil && !errors.Is(err, os.ErrPermission) {
		return err
	}
	return nil
}

// forget is how many bytes are read before they are dropped from the page cache.
const forget = 16 << 20

func build(ctx context.Context, out io.WriterAt, segment *os.File, size int64, head *pcapng.Head, beside bool) (Summary, error) {
	b := newBuilder(out, head)
	dropped := int64(0)
	report, err := pcapng.Read(segment, size, pcapng.Options{}, func(batch pcapng.Batch, data []byte) error {
		if at := int64(batch.Offset); beside && at-dropped >= forget {
			_ = unix.Fadvise(int(segment.Fd()), dropped, at-dropped, unix.FADV_DONTNEED) // it is only the cache's good
			dropped = at
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		return b.Add(batch, data)
	})
	if err != nil {
		return b.sum, fmt.Errorf("read the segment: %w", err)
	}
	return b.Close(report)
}
