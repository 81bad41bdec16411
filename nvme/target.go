package nvme

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/newfile"
)

// TargetConfig says what target to open: a file, a block device, or the NVMe node of a disk
// (/dev/ngXnY). The zero value of every field but Path is valid.
type TargetConfig struct {
	Path      string
	Create    bool          // make the file if it does not exist
	Exclusive bool          // with Create: fail if the file exists
	Dir       *newfile.Dir  // with Create: the directory of the file, owned by the caller; nil: the directory in Path
	Size      uint64        // bytes to prepare a file to; the smallest allowed size of a device in bytes
	Prepare   Preparation   // how a file gets to Size; default PrepareNone
	Buffered  bool          // without direct I/O let the kernel copy, instead of failing
	Force     bool          // write to a block device whatever is on it, even if it is in use
	Filled    bool          // accept a block device with contents, which are there to be used; one in use is still refused
	ReadOnly  bool          // open only for reading
	Share     uint64        // not 0: as long as it is open, the file or device can only be opened with the same number, or with none
	Wait      time.Duration // how long to wait for a device in use: the kernel closes the files of a killed process some time later
}

// Target is a file or block device opened for direct I/O. Queues of several
// threads may use it, and its methods but Close may be called from any goroutine.
type Target struct {
	path     string
	fd       int
	made     bool         // the file did not exist before
	dir      *newfile.Dir // directory of a new file, while it is opened
	block    bool
	char     bool       // a character device, which can only be an NVMe node
	node     *namespace // of an NVMe character node, else nil
	limits   Limits
	number   uint64 // device number of a block device or node
	size     atomic.Uint64
	align    Alignment
	direct   bool
	readOnly bool
}

// ErrNoDirectIO is matched by the error for a place without direct I/O.
var ErrNoDirectIO = errors.New("no direct I/O")

// OpenTarget opens a file or block device and prepares it. On error it removes a file that it made.
// The caller closes the target.
func OpenTarget(c TargetConfig) (*Target, error) {
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		t, err := openOnce(c)
		limit := time.Duration(0)
		switch {
		case errors.Is(err, ErrDeviceInUse):
			limit = c.Wait
		case errors.Is(err, ErrSharedOtherwise):
			limit = min(c.Wait, shareWait)
		}
		if time.Since(begun) >= limit {
			return t, err
		}
	}
}

// shareWait is how long the kernel may take to close the file of a target that was just closed here.
const shareWait = time.Second

func openOnce(c TargetConfig) (*Target, error) {
	t := &Target{path: c.Path, fd: -1, readOnly: c.ReadOnly}
	err := t.open(c)
	if err != nil {
		err = errors.Join(err, t.undo())
	}
	if err = errors.Join(err, t.leaveDir(c.Dir)); err != nil {
		return nil, fmt.Errorf("open target %s: %w", c.Path, err)
	}
	return t, nil
}

func (t *Target) open(c TargetConfig) error {
	if err := t.look(c); err != nil {
		return err
	}
	if t.char || t.block {
		opens := t.openDevice
		if t.char {
			opens = t.openNode
		}
		if err := opens(c); err != nil {
			return err
		}
		return t.share(c.Share)
	}
	if err := t.openFile(c); err != nil {
		return err
	}
	if err := t.share(c.Share); err != nil {
		return err
	}
	if err := t.findAlignment(c.Buffered); err != nil {
		return err
	}
	if err := t.findLimits(); err != nil {
		return err
	}
	return t.prepare(c)
}

// errNoTargetKind names the possible kinds of target.
var errNoTargetKind = errors.New("it is neither a file nor a block device nor an NVMe node (/dev/ngXnY)")

// look determines the kind of the file at the path before it is opened.
func (t *Target) look(c TargetConfig) error {
	var st unix.Stat_t
	err := unix.Stat(c.Path, &st)
	if errors.Is(err, unix.ENOENT) && c.Create && !c.ReadOnly {
		t.made = true
		return nil
	}
	if err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFBLK:
		t.block, t.number = true, uint64(st.Rdev)
		if c.Create && c.Exclusive {
			return unix.EEXIST
		}
	case unix.S_IFCHR:
		t.char, t.number = true, uint64(st.Rdev)
		if c.Create && c.Exclusive {
			return unix.EEXIST
		}
	case unix.S_IFREG:
	default:
		return errNoTargetKind
	}
	return nil
}

// openFile opens a file for direct I/O, or without it if that is allowed.
func (t *Target) openFile(c TargetConfig) error {
	flags := unix.O_RDWR
	if c.ReadOnly {
		flags = unix.O_RDONLY
	}
	var err error
	if !t.made && !c.Exclusive {
		if t.fd, err = openRetry(c.Path, flags|unix.O_DIRECT); errors.Is(err, unix.EINVAL) && c.Buffered {
			t.fd, err = openRetry(c.Path, flags)
			return err
		}
		if t.direct = err == nil; errors.Is(err, unix.EINVAL) {
			return t.noDirect()
		}
		return err
	}
	if err := t.makeFile(c); err != nil {
		return err
	}
	// Open the new file again by its descriptor: another process may have replaced its name.
	made := t.fd
	t.fd, err = openRetry(fmt.Sprintf("/proc/self/fd/%d", made), flags|unix.O_DIRECT)
	t.direct = err == nil
	switch {
	case err == nil:
		return unix.Close(made)
	case !errors.Is(err, unix.EINVAL):
		return errors.Join(err, unix.Close(made))
	case !c.Buffered:
		return errors.Join(t.noDirect(), unix.Close(made))
	}
	t.fd = made
	return nil
}

// makeFile makes the file if nothing exists at the path.
func (t *Target) makeFile(c TargetConfig) (err error) {
	if t.dir = c.Dir; t.dir == nil {
		if t.dir, err = newfile.OpenDir(filepath.Dir(c.Path)); err != nil {
			t.made = false
			return err
		}
	}
	f, err := t.dir.Create(filepath.Base(c.Path), 0o640)
	if err != nil {
		t.made = false
		return err
	}
	defer f.Close()
	t.made = true
	t.fd, err = unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	return err
}

// noDirect is the error for a place without direct I/O.
func (t *Target) noDirect() error {
	return fmt.Errorf("%w: %w", ErrNoDirectIO, &NotSupportedError{"direct I/O on " + fileSystem(t.path),
		"use a path on a disk's file system, such as ext4 or XFS"})
}

// openRetry opens the path. It repeats the call if a signal interrupts it.
func openRetry(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NOCTTY, 0o640)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// undo closes a target that could not be opened, and removes the file if it is new.
func (t *Target) undo() error {
	err := t.Close()
	if !t.made || t.dir == nil {
		return err
	}
	if e := t.dir.Remove(filepath.Base(t.path)); !errors.Is(e, unix.ENOENT) {
		err = errors.Join(err, e)
	}
	return err
}

// leaveDir closes the directory of a new file, unless the caller owns it.
func (t *Target) leaveDir(callers *newfile.Dir) error {
	d := t.dir
	if t.dir = nil; d == nil || d == callers {
		return nil
	}
	return d.Close()
}

// Close closes the target. Queues that contain it keep the file open until they remove it. A second
// call does nothing.
func (t *Target) Close() error {
	if t.fd < 0 {
		return nil
	}
	err := errors.Join(unix.Close(t.fd), t.node.close())
	t.fd = -1
	if err != nil {
		return fmt.Errorf("close target %s: %w", t.path, err)
	}
	return nil
}

// Path returns the path with which the target was opened.
func (t *Target) Path() string { return t.path }

// FD returns the open descriptor; the target owns it. It is -1 after Close.
func (t *Target) FD() int { return t.fd }

// Resize makes Size return what Measure has found. Any goroutine may call it.
func (t *Target) Resize(size uint64) { t.size.Store(size) }

// Size returns the size of the file or device in bytes, as it was when it was opened and prepared, or as Resize
// has set it.
func (t *Target) Size() uint64 { return t.size.Load() }

// Block reports whether the target is a block device.
func (t *Target) Block() bool { return t.block }

// Passthrough reports whether the target is an NVMe node. Its commands bypass the kernel's block layer.
func (t *Target) Passthrough() bool { return t.node != nil }

// BlockFD returns the open descriptor through which the kernel's block layer reaches the same bytes;
// the target owns it. It is FD, except for an NVMe node. There it is the descriptor of the
// namespace's block device, or -1 if the target does not have that device open. The kernel's cache
// of that device does not see commands to the node.
func (t *Target) BlockFD() int {
	if t.node != nil {
		return t.node.claim
	}
	return t.fd
}

// Direct reports whether the device moves the bytes itself. Otherwise the kernel copies each byte
// through its cache, and Stats.Copied counts them.
func (t *Target) Direct() bool { return t.direct }

// Alignment returns what the parts of requests must be multiples of.
func (t *Target) Alignment() Alignment { return t.align }

// place is a target in a queue's table. A mask is an alignment minus one.
type place struct {
	target     *Target
	offsetMask uint64
	memoryMask uint64
	inFlight   int
	unfixed    bool  // the kernel does not accept registered huge pages for commands of this node
	discards   uint8 // how to discard on a block device
}

// Add adds a target to the queue's table and returns its number, for umem.Side. The kernel keeps the file
// open until the target is removed or the queue is closed, even if the Target itself is closed.
func (q *Queue) Add(t *Target) (uint32, error) {
	if q.closed {
		return 0, ErrClosed
	}
	for i := range q.targets {
		if q.targets[i].target == nil {
			return uint32(i), q.set(uint32(i), t)
		}
	}
	return 0, fmt.Errorf("add %s to block queue %s: all %d places are taken: open the queue with more Targets", t.path, q.name, len(q.targets))
}

func (q *Queue) set(i uint32, t *Target) error {
	if t.fd < 0 {
		return fmt.Errorf("add %s to block queue %s: it is closed", t.path, q.name)
	}
	if t.node != nil && q.ring.wide == 0 {
		return fmt.Errorf("add %s to block queue %s: it is an NVMe node: open the queue with Passthrough", t.path, q.name)
	}
	if err := q.ring.setFile(i, int32(t.fd)); err != nil {
		return fmt.Errorf("add %s to block queue %s: %w", t.path, q.name, explainThread(err))
	}
	q.targets[i] = place{target: t, offsetMask: uint64(t.align.Offset) - 1, memoryMask: uint64(t.align.Memory) - 1}
	return nil
}

// Hold keeps a file open until the kernel has no operation of the queue left, also after the process was killed:
// its own descriptors are closed then, and what a disk has may still be written. So a lock of the open file
// (F_OFD_SETLK in fcntl(2)) says for certain whether a queue can still write. Hold is called once, like Add.
func (q *Queue) Hold(fd int) error {
	if q.closed {
		return ErrClosed
	}
	if err := q.ring.setFile(uint32(len(q.targets))+1, int32(fd)); err != nil {
		return fmt.Errorf("hold a file open with block queue %s: %w", q.name, explainThread(err))
	}
	return nil
}

// Remove removes a target from the table. It refuses while operations on it are in flight.
func (q *Queue) Remove(i uint32) error {
	if q.closed {
		return ErrClosed
	}
	if uint64(i) >= uint64(len(q.targets)) || q.targets[i].target == nil {
		return fmt.Errorf("remove target %d from block queue %s: there is none", i, q.name)
	}
	p := &q.targets[i]
	if p.inFlight > 0 {
		return fmt.Errorf("remove %s from block queue %s: %d operations are in flight: reap them first", p.target.path, q.name, p.inFlight)
	}
	if err := q.ring.setFile(i, -1); err != nil {
		return fmt.Errorf("remove %s from block queue %s: %w", p.target.path, q.name, explainThread(err))
	}
	*p = place{}
	return nil
}
