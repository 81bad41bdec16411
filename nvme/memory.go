package nvme

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/align"
	"github.com/unifiedd/unifiedd/umem"
)

// ringMemory is the memory of a ring's entries and words: in the region's control area
// (IORING_SETUP_NO_MMAP), or mapped from the kernel.
type ringMemory struct {
	sqes  []byte
	rings []byte
	piece *umem.ControlPiece // nil where the kernel's memory is mapped
}

// ringHeader bounds struct io_rings up to its completion entries, which start
// on the next cache line: include/linux/io_uring_types.h.
const ringHeader = 256

// ringBytes returns the sizes of both parts for that many submission entries. They are whole pages,
// because the kernel pins pages.
func ringBytes(entries uint32, wide uint8) (sqes, rings uint64) {
	page := uint64(os.Getpagesize())
	n := uint64(entries)
	return align.Up(n*sqeSize<<wide, page), align.Up(ringHeader+2*n*cqeSize<<wide+n*4, page)
}

// take gets zeroed memory from the region's control area.
func (m *ringMemory) take(region *umem.Region, entries uint32, wide uint8) error {
	sqes, rings := ringBytes(entries, wide)
	p, err := region.TakeControl(sqes + rings)
	if err != nil {
		return err
	}
	mem := p.Memory()
	clear(mem)
	m.piece = p
	m.sqes, m.rings = mem[:sqes:sqes], mem[sqes:]
	return nil
}

// mmap maps the memory that the kernel allocated. Child processes do not inherit the mapping.
func (m *ringMemory) mmap(fd int, p *ringParams, wide uint8) error {
	rings := max(uint64(p.sqOff.array)+uint64(p.sqEntries)*4, uint64(p.cqOff.cqes)+uint64(p.cqEntries)*cqeSize<<wide)
	var err error
	if m.rings, err = mapRing(fd, offSQRing, rings); err != nil {
		return err
	}
	m.sqes, err = mapRing(fd, offSQEs, uint64(p.sqEntries)*sqeSize<<wide)
	return err
}

func mapRing(fd int, offset int64, size uint64) ([]byte, error) {
	b, err := unix.Mmap(fd, offset, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, err
	}
	return b, unix.Madvise(b, unix.MADV_DONTFORK)
}

// unmap unmaps the kernel's memory.
func (m *ringMemory) unmap() error {
	if m.piece != nil {
		return nil
	}
	var errs []error
	for _, b := range [][]byte{m.rings, m.sqes} {
		if b != nil {
			errs = append(errs, unix.Munmap(b))
		}
	}
	*m = ringMemory{}
	return errors.Join(errs...)
}

// giveBack returns memory to the control area. The kernel must no longer write to it.
func (m *ringMemory) giveBack() {
	if m.piece != nil {
		m.piece.Release()
	}
	*m = ringMemory{}
}

// abandon gives up memory of the control area that the kernel has not released.
func (m *ringMemory) abandon() {
	if m.piece != nil {
		m.piece.Abandon()
	}
}

// scratch is memory of this package that the kernel reads through pointers: the pieces of chains,
// ranges to discard and the argument of a wait. It is mapped outside the Go heap.
type scratch struct {
	mem    []byte
	pieces []iovec    // a list for each operation; pages never used stay unallocated
	ranges []dsmRange // one for each operation
	wait   []byte     // a getEventsArg that points to limit
	limit  *timespec
}

func newScratch(operations, pieces uint64) (*scratch, error) {
	vecs := operations * pieces * iovecSize
	ranges := operations * dsmSize
	size := align.Up(vecs+ranges+waitSize, uint64(os.Getpagesize()))
	mem, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes for the pieces of chains: %w", size, err)
	}
	s := &scratch{mem: mem, pieces: entriesOf[iovec](mem, 0, operations*pieces), ranges: entriesOf[dsmRange](mem, vecs, operations)}
	s.wait, s.limit = waitArg(mem[vecs+ranges:])
	return s, nil
}

func (s *scratch) release() error {
	if s.mem == nil {
		return nil
	}
	err := unix.Munmap(s.mem)
	*s = scratch{}
	return err
}

// bufferShift is log2 of 1 GiB, the largest buffer that io_uring registers (io_uring/rsrc.c).
const bufferShift = 30

// bufferNumbers finds the registered buffer with an address of the region. The frames and extents of the region
// are buffers of 1 GiB, except the last one. Each part of a slice follows with buffers of its own.
type bufferNumbers struct {
	plain  uint64   // bytes of frames and extents
	first  uint16   // number of the buffer behind them
	starts []uint64 // addresses of that buffer and those that follow
}

// numberBuffers returns the numbers of pieces that umem.Region.Buffers has returned.
func numberBuffers(buffers [][]byte) (b bufferNumbers) {
	at, plain := uint64(0), true
	for _, one := range buffers {
		if plain {
			b.plain += uint64(len(one))
			b.first++
			plain = len(one) == 1<<bufferShift
		} else {
			b.starts = append(b.starts, at)
		}
		at += uint64(len(one))
	}
	return b
}

// of returns the number of the buffer with an address.
func (b *bufferNumbers) of(addr uint64) uint16 {
	if addr < b.plain || len(b.starts) == 0 {
		return uint16(addr >> bufferShift)
	}
	n := b.first
	for _, start := range b.starts[1:] {
		if addr < start {
			break
		}
		n++
	}
	return n
}

// same reports whether n bytes from addr are in one buffer.
func (b *bufferNumbers) same(addr, n uint64) bool { return n == 0 || b.of(addr) == b.of(addr+n-1) }

// maxBuffers is the largest number of buffers of io_uring: IORING_MAX_REG_BUFFERS in io_uring/rsrc.c.
const maxBuffers = 1 << 14

// checkBuffers returns an error if io_uring takes fewer buffers than the region has.
func checkBuffers(buffers [][]byte) error {
	if len(buffers) > maxBuffers {
		return fmt.Errorf("the region is %d buffers of 1 GiB; io_uring takes %d: use a smaller region", len(buffers), maxBuffers)
	}
	return nil
}

// ErrBadRange says that a range to discard or zero is empty, is not in whole blocks (Alignment), or
// leaves the target.
var ErrBadRange = errors.New("the range is empty, not in whole blocks of the target, or leaves it")

// Discard queues a discard of n bytes of a target from an offset. The device, or the file system of
// a file, may reuse them. Afterwards they read as anything on a device, and as zeros in a file.
// Like a flush it starts with the next Kick, and Flushed returns its result.
func (q *Queue) Discard(target uint32, at, n, token uint64) error {
	return q.span(discarding, target, at, n, token)
}

// Zero queues an operation after which n bytes of a target from an offset read as zeros. If the device can
// do that, no zeros are moved from memory. In a file the blocks become unwritten ones, whose next write
// changes metadata. Like a flush it starts with the next Kick, and Flushed returns its result.
func (q *Queue) Zero(target uint32, at, n, token uint64) error {
	return q.span(zeroing, target, at, n, token)
}

func (q *Queue) span(k kind, target uint32, at, n, token uint64) error {
	if err := q.admit(target, k); err != nil {
		return err
	}
	t := q.targets[target].target
	switch {
	case t.readOnly:
		return fmt.Errorf("%v %s: %w", k, t.path, unix.EROFS)
	case (at|n)&(uint64(t.align.Offset)-1) != 0 || n == 0 || at > 1<<62 || n > 1<<62 || t.fixedSize() && at+n > t.Size():
		return ErrBadRange
	case t.fixedSize() && k == discarding && t.limits.Discard == 0:
		return &NotSupportedError{"discarding on " + t.path, "write over it, or zero it"}
	case t.node != nil && k == zeroing && t.limits.Zeroes == 0:
		return &NotSupportedError{"zeroing on " + t.path, "write zeros"}
	}
	i := q.begin(k, target, token)
	q.ops[i].block, q.ops[i].total = at, n
	q.issue(i)
	return nil
}

// fixedSize reports whether the target cannot grow.
func (t *Target) fixedSize() bool { return t.block || t.node != nil }

// Ways to discard on a block device, in the order in which they are tried.
const (
	discardCommand   = iota // an io_uring command, Linux 6.12
	discardWaiting          // the same from a kernel thread, for devices that cannot refuse to wait
	discardFallocate        // by fallocate
	discardWays
)

// spanEntry returns the submission for a range of a file or block device.
func (q *Queue) spanEntry(i uint32) sqe {
	o := &q.ops[i]
	p := &q.targets[o.target]
	o.way = p.discards
	s := sqe{opcode: opFallocate, flags: sqeFixedFile, fd: int32(o.target), off: o.block, addr: o.total, userData: q.userData(i)}
	switch {
	case o.kind == zeroing:
		s.len = unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE
	case !p.target.block:
		s.len = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	case o.way < discardFallocate:
		s.opcode, s.off, s.addr, s.addr3 = opURingCmd, blockDiscard, o.block, o.total
	default:
		s.len = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE | unix.FALLOC_FL_NO_HIDE_STALE
	}
	if o.way == discardWaiting {
		s.flags |= sqeAsync
	}
	return s
}

// tryOther reports whether to try a discard that the kernel does not know in another way.
func (q *Queue) tryOther(o *op, errno unix.Errno) bool {
	p := &q.targets[o.target]
	if o.kind != discarding || !p.target.block || errno != unix.EOPNOTSUPP || o.way+1 >= discardWays {
		return false
	}
	p.discards = max(p.discards, o.way+1)
	return true
}

// ErrSharedOtherwise is matched if the file or device is open with another TargetConfig.Share.
var ErrSharedOtherwise = errors.New("the disk is shared as something else")

// Locks of shared targets are of the bytes from shareFrom on, which no file has, and which programs for disk images do
// not lock.
const (
	shareFrom = 1 << 62
	shareMask = 1<<61 - 1
)

// share takes a read lock of the byte with the target's number, and refuses the target if somebody has one of
// another byte. The locks belong to the open file. So they last until the target is closed and no queue has it,
// which is after the last operation, also if the process was killed.
func (t *Target) share(number uint64) error {
	if number == 0 {
		return nil
	}
	fd := t.fd
	if t.node != nil && t.node.claim >= 0 {
		fd = t.node.claim // locks belong to the file of a device: the node's are not those of the block device
	}
	at := shareFrom + int64(number&shareMask)
	mine := unix.Flock_t{Type: unix.F_RDLCK, Start: at, Len: 1}
	err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &mine)
	for _, others := range []unix.Flock_t{{Start: shareFrom, Len: at - shareFrom}, {Start: at + 1, Len: shareFrom + shareMask - at}} {
		if others.Type = unix.F_WRLCK; err == nil && others.Len > 0 {
			err = unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &others)
		}
		if err == nil && others.Len > 0 && others.Type != unix.F_UNLCK {
			return ErrSharedOtherwise
		}
	}
	switch {
	case errors.Is(err, unix.ENOLCK), errors.Is(err, unix.EOPNOTSUPP):
		return nil // a file system without locks
	case err != nil:
		return fmt.Errorf("lock it: %w", err)
	}
	return nil
}

// teardownWait tells when the kernel has torn a ring down. The kernel does so in the background
// after the descriptor is closed, and writes to the ring's words until then (io_ring_exit_work in
// io_uring/io_uring.c). teardownWait is a pipe whose writing end is only in the ring's file table,
// which the kernel empties last.
type teardownWait struct{ fd int }

// newTeardownWait registers one at a place of the ring's file table.
func (r *ring) newTeardownWait(place uint32) (teardownWait, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return teardownWait{-1}, fmt.Errorf("make a pipe: %w", err)
	}
	err := errors.Join(r.setFile(place, int32(ends[1])), unix.Close(ends[1]))
	if err != nil {
		return teardownWait{-1}, errors.Join(err, unix.Close(ends[0]))
	}
	return teardownWait{ends[0]}, nil
}

// await waits until the ring is gone, at most for limit, and reports whether it is. It returns
// false if no pipe is registered.
func (w *teardownWait) await(limit time.Duration) bool {
	if w.fd < 0 {
		return false
	}
	fds := []unix.PollFd{{Fd: int32(w.fd)}} // a pipe without writers reports POLLHUP
	for end := time.Now().Add(limit); ; {
		left := time.Until(end)
		n, err := unix.Poll(fds, int(max(left, 0).Milliseconds()))
		if n > 0 {
			return fds[0].Revents&unix.POLLHUP != 0
		}
		if left <= 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return false
		}
	}
}

func (w *teardownWait) close() error {
	if w.fd < 0 {
		return nil
	}
	err := unix.Close(w.fd)
	w.fd = -1
	return err
}
