package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// stream returns the writer for packets that do not go to a regular file, and the function that
// closes it. The writer is nil for a regular file. A named pipe or terminal is written directly.
func (f *captureFlags) stream(stdout io.Writer) (to io.Writer, end func() error, err error) {
	switch f.file {
	case "":
		return io.Discard, stay, nil
	case "-", "/dev/stdout":
		to, end = f.reopened(stdout)
		return to, end, nil
	}
	if info, err := os.Stat(f.file); err != nil || info.Mode()&(fs.ModeNamedPipe|fs.ModeCharDevice) == 0 {
		return nil, stay, nil
	}
	if err := checkAccess("write to", f.file, unix.W_OK, "let the user write to it"); err != nil {
		return nil, stay, err
	}
	pipe, err := openPipe(f.file)
	if err != nil {
		return nil, stay, err
	}
	return pipe, pipe.Close, nil
}

// openPipe opens a pipe or character device for writing. It checks the descriptor, so that the
// name cannot be replaced by a file or disk.
func openPipe(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &os.PathError{Op: "look at", Path: path, Err: err}
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFIFO && kind != unix.S_IFCHR {
		return nil, fmt.Errorf("open %s: it is no pipe any more (try again)", path)
	}
	return openAgain(fd, path)
}

// openAgain opens the file behind a descriptor for writing. Errors of the new file contain name. If
// it is a pipe, writes to it can be interrupted.
func openAgain(fd int, name string) (*os.File, error) {
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_WRONLY, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: errors.Unwrap(err)}
	}
	defer f.Close()
	own, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	if info, err := f.Stat(); err == nil && info.Mode()&fs.ModeNamedPipe != 0 {
		_ = unix.SetNonblock(own, true) // otherwise writes cannot be interrupted
	}
	return os.NewFile(uintptr(own), name), nil
}

// stay closes nothing. It is for outputs that this program did not open.
func stay() error { return nil }

// reopened opens an inherited pipe again, so that writes can be interrupted without a change to the
// mode that other processes share. It returns any other writer unchanged.
func (c *captureFlags) reopened(w io.Writer) (to io.Writer, end func() error) {
	f, ok := w.(*os.File)
	if !ok {
		return w, stay
	}
	if info, err := f.Stat(); err != nil || info.Mode()&fs.ModeNamedPipe == 0 {
		return w, stay
	}
	if c.ownStdout && unix.SetNonblock(int(f.Fd()), true) == nil {
		return os.NewFile(f.Fd(), f.Name()), stay
	}
	own, err := openAgain(int(f.Fd()), f.Name())
	if err != nil { // a pipe of another user
		return w, stay
	}
	return own, own.Close
}

// readerPatience is how long a capture waits for the reader of its pipe at its end.
const readerPatience = 10 * time.Second

// interrupt ends a pending write to a pipe after a while. callOff cancels that.
func interrupt(stream io.Writer, after time.Duration) (callOff func()) {
	f, ok := stream.(*os.File)
	if !ok {
		return func() {}
	}
	t := time.AfterFunc(after, func() { _ = f.SetWriteDeadline(time.Now()) }) // only pipes have a deadline
	return func() { t.Stop() }
}
