// Package capinput opens capture files for random access. It opens a regular file itself. A compressed file
// or a pipe has no random access, so the package copies it to a temporary file without a name.
//
// A file is compressed if it begins like one of gzip, zstd or lz4, as in tshark; its name does not matter.
// The temporary file is in $TMPDIR, or in /var/tmp, and leaves a twentieth of that disk free. Closing it
// removes it.
package capinput

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"golang.org/x/sys/unix"
)

// Input is an open capture with random access. The caller closes it.
type Input struct {
	*os.File
	Copied int64 // bytes that were copied into a temporary file; 0: it is the file itself
	Cut    error // why the copy is incomplete; nil: it is complete
}

// Standard is standard input. Open does not open its path again, which another user might not be permitted to
// do, but uses the open file.
const Standard = "/dev/stdin"

// Open opens a capture by its path, Standard for standard input. The end of ctx also ends reading from a
// pipe.
func Open(ctx context.Context, path string) (*Input, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	in, err := prepare(ctx, f)
	if err != nil || in.File != f {
		err = errors.Join(err, f.Close())
	}
	return in, err
}

// open opens a path. For a FIFO it does not wait for a writer; reading does.
func open(path string) (*os.File, error) {
	if path != Standard {
		return os.Open(path)
	}
	fd, err := unix.FcntlInt(os.Stdin.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open standard input: %w", err)
	}
	return os.NewFile(uintptr(fd), "standard input"), nil
}

// prepare returns the file itself, or a copy of its contents.
func prepare(ctx context.Context, f *os.File) (*Input, error) {
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, errors.New("it is a directory: name a file in it")
	case info.Mode().IsRegular():
		return prepareRegular(f)
	case info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) != 0:
		return copyOf(f, &interruptible{f, ctx})
	case info.Mode()&fs.ModeDevice != 0 && info.Mode()&fs.ModeCharDevice == 0:
		return &Input{File: f}, nil
	}
	return nil, errors.New("it is neither a file nor a pipe")
}

// prepareRegular returns a regular file itself, unless it is compressed, or was partly read before this
// process got it.
func prepareRegular(f *os.File) (*Input, error) {
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, err
	}
	var start [4]byte
	n, err := f.ReadAt(start[:], at)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if at == 0 && compression(start[:n]) == nil {
		return &Input{File: f}, nil
	}
	return copyOf(f, f)
}

// decompressor decompresses a stream.
type decompressor func(io.Reader) (io.Reader, error)

// formats are the first bytes of compressed files.
var formats = []struct {
	magic  []byte
	reader decompressor
}{
	{[]byte{0x1f, 0x8b}, func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }},
	{[]byte{0x28, 0xb5, 0x2f, 0xfd}, func(r io.Reader) (io.Reader, error) {
		return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(mostWindow))
	}},
	{[]byte{0x04, 0x22, 0x4d, 0x18}, func(r io.Reader) (io.Reader, error) { return lz4.NewReader(r), nil }},
}

// mostWindow bounds the memory of decompression, as zstd(1) does without --long: a file of 100 bytes can demand 2 GiB.
const mostWindow = 128 << 20

// errWindow names the remedy for a file that demands more memory.
var errWindow = fmt.Errorf("decompressing it takes more memory than %d MiB (decompress it first: zstd -d --long=31)", mostWindow>>20)

// compression returns the decompressor for a stream with these first bytes; nil if it is not
// compressed.
func compression(start []byte) decompressor {
	for _, f := range formats {
		if bytes.HasPrefix(start, f.magic) {
			return f.reader
		}
	}
	return nil
}

// copyOf copies all of r, decompressed, into a temporary file.
func copyOf(f *os.File, r io.Reader) (*Input, error) {
	var start [4]byte
	n, err := io.ReadFull(r, start[:])
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, err
	}
	r = io.MultiReader(bytes.NewReader(start[:n]), r)
	if begin := compression(start[:n]); begin != nil {
		if r, err = begin(r); err != nil {
			return nil, fmt.Errorf("decompress: %w", err)
		}
		if z, ok := r.(*zstd.Decoder); ok {
			defer z.Close()
		}
	}
	to, err := temporary()
	if err != nil {
		return nil, err
	}
	in := &Input{File: to}
	room := &roomy{File: to}
	in.Copied, err = io.Copy(room, r)
	switch {
	case room.err != nil:
		return nil, errors.Join(fmt.Errorf("copy %s to %s: %w", f.Name(), directory(), room.err), to.Close())
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return nil, errors.Join(errWindow, to.Close())
	case err != nil && in.Copied == 0:
		return nil, errors.Join(fmt.Errorf("read: %w", err), to.Close())
	case err != nil:
		in.Cut = fmt.Errorf("read after the first %d bytes: %w", in.Copied, err)
	}
	_, err = to.Seek(0, io.SeekStart)
	return in, err
}

// directory is the directory for temporary files. It is not /tmp, which is memory on many machines.
func directory() string { return cmp.Or(os.Getenv("TMPDIR"), "/var/tmp") }

// temporary makes a file without a name.
func temporary() (*os.File, error) {
	dir := directory()
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make a temporary file in %s: %w (name another directory with TMPDIR)", dir, err)
	}
	return os.NewFile(uintptr(fd), dir+"/(temporary)"), nil
}

// roomy writes to a file while a twentieth of its disk is free.
type roomy struct {
	*os.File
	left int64 // bytes until the next look
	err  error // of writing, and not of reading
}

// errNoRoom says what to do about a full disk.
var errNoRoom = errors.New("the disk would be full: name a directory with more room with TMPDIR")

// lookEvery is how many bytes are written between two checks.
const lookEvery = 16 << 20

func (w *roomy) Write(b []byte) (int, error) {
	if w.left -= int64(len(b)); w.left < 0 {
		w.left = lookEvery
		var st unix.Statfs_t
		if w.err = unix.Fstatfs(int(w.Fd()), &st); w.err == nil && st.Bavail*uint64(st.Bsize) < max(st.Blocks*uint64(st.Bsize)/20, 2*lookEvery) {
			w.err = errNoRoom
		}
		if w.err != nil {
			return 0, w.err
		}
	}
	n, err := w.File.Write(b)
	if w.err = err; errors.Is(err, unix.ENOSPC) {
		w.err = errNoRoom
	}
	return n, w.err
}

// ReadFrom hides os.File's ReadFrom, which would bypass Write.
func (w *roomy) ReadFrom(r io.Reader) (int64, error) { return io.Copy(struct{ io.Writer }{w}, r) }

// interruptible reads from a pipe until a context ends.
type interruptible struct {
	f   *os.File
	ctx context.Context
}

// pollEvery is how often a reader checks its context.
const pollEvery = 200 * time.Millisecond

func (r *interruptible) Read(b []byte) (int, error) {
	for {
		if err := r.ctx.Err(); err != nil {
			return 0, err
		}
		all := []unix.PollFd{{Fd: int32(r.f.Fd()), Events: unix.POLLIN}}
		if n, err := unix.Poll(all, int(pollEvery.Milliseconds())); n == 0 || err == unix.EINTR {
			continue
		} else if err != nil {
			return 0, err
		}
		return r.f.Read(b)
	}
}
