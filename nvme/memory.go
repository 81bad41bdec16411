package nvme

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/umem"
)

// ringMemory is where a ring's entries and words lie: in the region's control
// area (IORING_SETUP_NO_MMAP) or mapped from the kernel.
type ringMemory struct {
	sqes  []byte
	rings []byte
	piece *umem.ControlPiece // nil where the kernel's memory is mapped
}

// ringHeader bounds struct io_rings up to its completion entries, which start
// on the next cache line: include/linux/io_uring_types.h.
const ringHeader = 256

// ringBytes are the sizes of both parts for so many submission entries: whole
// pages, as the kernel pins them.
func ringBytes(entries uint32, wide uint8) (sqes, rings uint64) {
	page := uint64(os.Getpagesize())
	n := uint64(entries)
	return roundUp(n*sqeSize<<wide, page), roundUp(ringHeader+2*n*cqeSize<<wide+n*4, page)
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

// mmap maps what the kernel allocated, and keeps it out of child processes.
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

// unmap unmaps what was mapped from the kernel.
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

// giveBack puts memory back into the control area. The kernel must no longer
// write to it.
func (m *ringMemory) giveBack() {
	if m.piece != nil {
		m.piece.Release()
	}
	*m = ringMemory{}
}

// abandon leaves memory of the control area to a kernel that has not let go of it.
func (m *ringMemory) abandon() {
	if m.piece != nil {
		m.piece.Abandon()
	}
}

// scratch is memory of our own that the kernel reads through pointers: the
// pieces of chains, ranges to discard and the argument of a wait. It is mapped outside the Go heap.
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
	size := roundUp(vecs+ranges+waitSize, uint64(os.Getpagesize()))
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

func roundUp(n, to uint64) uint64 { return (n + to - 1) / to * to }
