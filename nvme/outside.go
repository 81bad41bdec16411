package nvme

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/umem"
)

// Outside is memory that is not the region's and that a queue writes from, such as the ring of a
// packet socket, which the kernel allocates. It consists of blocks. Send takes a block as one frame:
// its Addr is the region's size plus the offset in the memory, and Queue.Side has its place on the
// disk. Nobody keeps account of such frames. The caller leaves a block alone until Reap returns it,
// and keeps the memory mapped until the queue is closed.
type Outside struct {
	Memory []byte // mapped memory, whole blocks; nil: none
	Block  uint64 // bytes of a block: a power of two, from 4096 to 1 GiB
}

// minBlock is the least size of a block in bytes.
const minBlock = 4096

// outside is the memory of a queue that is not the region's.
type outside struct {
	memory       []byte
	base         uint64 // address of its first byte
	from         uint64 // first address of its frames: the region's size
	size         uint64
	mask         uint64 // of an offset in a block
	sides        []umem.Side
	unregistered bool   // it is not registered
	first        uint16 // number of its first registered buffer
}

// newOutside checks the memory. No block crosses a boundary of registered buffers.
func newOutside(c Outside, region *umem.Region) (outside, error) {
	if c.Memory == nil {
		return outside{from: ^uint64(0)}, nil
	}
	if c.Block < minBlock || c.Block > 1<<bufferShift || c.Block&(c.Block-1) != 0 || uint64(len(c.Memory))%c.Block != 0 {
		return outside{}, fmt.Errorf("%d bytes outside the region in blocks of %d: a block has a power of two bytes from %d to %d, and the memory whole blocks", len(c.Memory), c.Block, minBlock, 1<<bufferShift)
	}
	return outside{
		memory: c.Memory, base: address(c.Memory), from: region.Size(), size: uint64(len(c.Memory)), mask: c.Block - 1,
		sides: make([]umem.Side, uint64(len(c.Memory))/c.Block), first: uint16(len(region.Buffers())),
	}, nil
}

// buffers returns the memory in pieces that io_uring registers.
func (o *outside) buffers() (all [][]byte) {
	for rest := o.memory; len(rest) > 0; {
		n := min(len(rest), 1<<bufferShift)
		all = append(all, rest[:n:n])
		rest = rest[n:]
	}
	return all
}

// has reports whether a frame is a block of the memory.
func (o *outside) has(f umem.Frame) bool { return f.Addr >= o.from }

// side returns the side of a block. Frames beyond the memory share the last one; check refuses them.
func (o *outside) side(f umem.Frame) *umem.Side {
	return &o.sides[min((f.Addr-o.from)/(o.mask+1), uint64(len(o.sides)-1))]
}

// check refuses a frame that leaves its block.
func (o *outside) check(f umem.Frame) unix.Errno {
	at := f.Addr - o.from
	if at >= o.size || uint64(f.Len) > o.mask+1-at&o.mask {
		return unix.EFAULT
	}
	return 0
}

// checkOutside refuses a block in a chain, on a node or to read into, and one that leaves the memory.
func (q *Queue) checkOutside(o *op, f umem.Frame) unix.Errno {
	if o.count != 1 || o.kind != writing || q.targets[o.target].target.node != nil {
		return unix.EINVAL
	}
	return q.outside.check(f)
}

// place returns the address of a frame's bytes and the number of the registered buffer that has them.
func (o *outside) place(f umem.Frame) (addr uint64, buffer uint16) {
	at := f.Addr - o.from
	return o.base + at, o.first + uint16(at>>bufferShift)
}

// Side returns the side of a frame: the region's, or that of a block of [Outside] memory. It belongs
// to whoever has the frame.
func (q *Queue) Side(f umem.Frame) *umem.Side {
	if q.outside.has(f) {
		return q.outside.side(f)
	}
	return q.region.Side(f)
}

// pass records that frames of the region change hands. Frames outside of it have no records.
func (q *Queue) pass(from, to *umem.Holder, fs []umem.Frame) {
	if q.outside.memory == nil {
		from.PassTo(to, fs)
		return
	}
	q.eachInside(fs, func(run []umem.Frame) { from.PassTo(to, run) })
}

// eachInside calls do for each run of frames of the region.
func (q *Queue) eachInside(fs []umem.Frame, do func([]umem.Frame)) {
	for len(fs) > 0 {
		n := 0
		for n < len(fs) && !q.outside.has(fs[n]) {
			n++
		}
		if n > 0 {
			do(fs[:n])
		}
		fs = fs[min(n+1, len(fs)):]
	}
}
