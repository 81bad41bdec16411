package testenv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Backing is the content of a served file. Calls do not overlap.
type Backing interface {
	io.ReaderAt
	io.WriterAt
	Sync() error // of everything that was written before
	Size() int64 // does not change
}

// ServedFile makes a file whose reads, writes and flushes go to b, and returns its path. A loop device over
// it has b as its disk. The file is served by FUSE from this process, which must not open it with package os:
// epoll asks the server about the file, and the Go runtime does not run the server meanwhile. The end of the test
// removes the file, and fails if it is still open.
func ServedFile(t testing.TB, b Backing) (path string) {
	t.Helper()
	Root(t)
	path = filepath.Join(t.TempDir(), "served")
	Must(t, os.WriteFile(path, nil, 0o600))
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	Mustf(t, err, "serve a file: open /dev/fuse")
	forget := note(t, "mount", path)
	if err := unix.Mount("unifiedd-test", path, "fuse", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("fd=%d,rootmode=100600,user_id=0,group_id=0", fd)); err != nil {
		forget()
		unix.Close(fd)
		t.Fatalf("serve a file: mount %s: %v", path, err)
	}
	s := &fileServer{Backing: b, fd: fd}
	var serving sync.WaitGroup
	serving.Go(func() {
		s.serve()
		unix.Close(fd) // requests that have no answer fail
	})
	t.Cleanup(func() {
		t.Helper()
		if err := unmountWithin(path); err != nil {
			t.Errorf("remove a served file: %v (something has it open)", err)
			_ = unmount(path)
		}
		forget()
		serving.Wait()
		if s.err != nil {
			t.Errorf("serve %s: %v", path, s.err)
		}
	})
	return path
}

// unmountWithin unmounts a file system, which a process that has just ended may still use.
func unmountWithin(dir string) (err error) {
	within(10*time.Second, func() bool {
		err = unix.Unmount(dir, 0)
		return !errors.Is(err, unix.EBUSY)
	})
	return err
}

// Attached makes a loop device over file and returns its path. detach removes it once nobody has it open or mounted.
// The end of the test does that if the test has not.
func Attached(t testing.TB, file string) (device string, detach func()) {
	t.Helper()
	Root(t)
	back, err := unix.Open(file, unix.O_RDWR|unix.O_CLOEXEC, 0)
	Mustf(t, err, "open %s", file)
	defer unix.Close(back)
	dev, err := attachLoop(back, filepath.Base(file), 0)
	Mustf(t, err, "make a loop device over %s", file)
	detach = sync.OnceFunc(func() {
		Check(t, detachLoop(dev))
	})
	t.Cleanup(detach)
	return dev.Name(), detach
}

// Mount mounts the ext4 file system of a device at dir until the test ends.
func Mount(t testing.TB, device, dir string) {
	t.Helper()
	forget := note(t, "mount", dir)
	if err := unix.Mount(device, dir, "ext4", unix.MS_NOATIME, ""); err != nil {
		forget()
		t.Fatalf("mount %s at %s: %v", device, dir, err)
	}
	t.Cleanup(func() {
		if err := unmountWithin(dir); err != nil {
			t.Errorf("unmount %s: %v (something on it is still open)", dir, err)
			_ = unmount(dir)
		}
		forget()
	})
}

// fileServer answers the kernel's requests for one file: see fuse(4) and linux/fuse.h, version 7.31.
type fileServer struct {
	Backing
	fd  int
	err error // why serve has ended, if the file was not unmounted
}

// Requests of the kernel, and what answers to them have.
const (
	fuseForget, fuseGetattr, fuseOpen, fuseRead, fuseWrite        = 2, 3, 14, 15, 16
	fuseRelease, fuseFsync, fuseFlush, fuseInit                   = 18, 20, 25, 26
	fuseInterrupt, fuseBatchForget                                = 36, 42
	fuseHeader, fuseAnswer                                        = 40, 16 // bytes
	fuseMajor, fuseMinor                                          = 7, 31
	fuseBigWrites, fuseMaxPages                            uint32 = 1 << 5, 1 << 22
	fuseDirect                                                    = 1 // FOPEN_DIRECT_IO
	fusePages                                                     = 256
	fuseLongest                                                   = fusePages * 4096
)

// serve handles one request after the other until the file is unmounted.
func (s *fileServer) serve() {
	in, out := make([]byte, fuseLongest+4096), make([]byte, fuseAnswer+fuseLongest)
	for {
		n, err := unix.Read(s.fd, in)
		switch {
		case errors.Is(err, unix.ENODEV):
			return // unmounted
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOENT):
			continue
		case err != nil || n < fuseHeader:
			s.err = fmt.Errorf("a request of %d bytes: %w", n, err)
			return
		}
		length, errno, none := s.handle(binary.NativeEndian.Uint32(in[4:]), in[fuseHeader:n], out[fuseAnswer:])
		if none {
			continue
		}
		if errno != 0 {
			length = 0
		}
		binary.NativeEndian.PutUint32(out, uint32(fuseAnswer+length))
		binary.NativeEndian.PutUint32(out[4:], uint32(-int32(errno)))
		copy(out[8:16], in[8:16]) // the request's number
		if _, err := unix.Write(s.fd, out[:fuseAnswer+length]); err != nil && !errors.Is(err, unix.ENOENT) {
			s.err = fmt.Errorf("answer a request: %w", err)
			return
		}
	}
}

// handle handles a request, and puts the answer into out. none: there is no answer.
func (s *fileServer) handle(what uint32, in, out []byte) (length int, errno unix.Errno, none bool) {
	ne := binary.NativeEndian
	switch what {
	case fuseInit:
		clear(out[:64])
		for i, v := range []uint32{fuseMajor, fuseMinor, 0, fuseBigWrites | fuseMaxPages, 0, fuseLongest, 1, fusePages} {
			ne.PutUint32(out[4*i:], v)
		}
		return 64, 0, false
	case fuseGetattr:
		clear(out[:104])
		ne.PutUint64(out, 3600) // valid for: seconds
		attr := out[16:]
		ne.PutUint64(attr, 1)
		ne.PutUint64(attr[8:], uint64(s.Size()))
		ne.PutUint64(attr[16:], uint64(s.Size()/512))
		ne.PutUint32(attr[60:], unix.S_IFREG|0o600)
		ne.PutUint32(attr[64:], 1)
		ne.PutUint32(attr[80:], 4096)
		return 104, 0, false
	case fuseOpen:
		clear(out[:16])
		ne.PutUint32(out[8:], fuseDirect)
		return 16, 0, false
	case fuseRead, fuseWrite:
		length, errno = s.move(what, in, out)
		return length, errno, false
	case fuseFsync:
		if s.Sync() != nil {
			return 0, unix.EIO, false
		}
		return 0, 0, false
	case fuseFlush, fuseRelease:
		return 0, 0, false
	case fuseForget, fuseBatchForget, fuseInterrupt:
		return 0, 0, true
	}
	return 0, unix.ENOSYS, false
}

// move reads or writes.
func (s *fileServer) move(what uint32, in, out []byte) (length int, errno unix.Errno) {
	ne := binary.NativeEndian
	if len(in) < 40 {
		return 0, unix.EINVAL
	}
	at, n := int64(ne.Uint64(in[8:])), int(ne.Uint32(in[16:]))
	if what == fuseRead {
		n, err := s.ReadAt(out[:min(n, len(out))], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, unix.EIO
		}
		return n, 0
	}
	if len(in)-40 < n {
		return 0, unix.EINVAL
	}
	if _, err := s.WriteAt(in[40:][:n], at); err != nil {
		return 0, unix.EIO
	}
	ne.PutUint32(out, uint32(n))
	ne.PutUint32(out[4:], 0)
	return 8, 0
}
