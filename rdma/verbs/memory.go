//go:build verbs && cgo

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/lifetime"
	"github.com/unifiedd/unifiedd/umem"
)

// memoryRegion is a registration of a region, or of part of one.
type memoryRegion struct {
	life   lifetime.Object
	pd     *domain
	mr     *C.struct_ibv_mr
	lkey   uint32
	rkey   uint32
	addr   uint64
	length uint64
	access rdma.Access
	held   *umem.Registration
	// place is the index in the table of memories; -1: not in it.
	place int
	base  uint64 // address of the region in this process
}

func (m *memoryRegion) String() string { return m.life.String() }

var _ rdma.MemoryRegion = (*memoryRegion)(nil)

func (p *domain) Register(r *umem.Region, a rdma.Access) (rdma.MemoryRegion, error) {
	place, err := p.memories.take()
	if err != nil {
		return nil, err
	}
	m, err := p.register(r, 0, r.Size(), a)
	if err != nil {
		p.memories.give(place)
		return nil, err
	}
	m.place, m.base = int(place), addressOfMemory(r.Data())
	m.show()
	return m, nil
}

// show makes the memory available for inline data, and hide ends that.
func (m *memoryRegion) show() {
	if m.place >= 0 {
		C.ud_set_memory(m.pd.tables, C.uint32_t(m.place), C.struct_ud_memory{used: 1, lkey: C.uint32_t(m.lkey),
			first: C.uint64_t(m.addr), length: C.uint64_t(m.length), base: C.uint64_t(m.base)})
	}
}

func (m *memoryRegion) hide() {
	if m.place >= 0 {
		C.ud_set_memory(m.pd.tables, C.uint32_t(m.place), C.struct_ud_memory{})
	}
}

func (p *domain) RegisterPart(r *umem.Region, addr, length uint64, a rdma.Access) (rdma.MemoryRegion, error) {
	if length == 0 || addr > r.Size() || length > r.Size()-addr {
		return nil, fmt.Errorf("register %d bytes from %#x: the region has %d", length, addr, r.Size())
	}
	m, err := p.register(r, addr, length, a)
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (p *domain) register(r *umem.Region, addr, length uint64, a rdma.Access) (*memoryRegion, error) {
	switch {
	case a&^rdma.EveryAccess != 0:
		return nil, fmt.Errorf("register memory with rights %#x: %#x is none of them", uint32(a), uint32(a&^rdma.EveryAccess))
	case a&(rdma.RemoteWrite|rdma.RemoteAtomic) != 0 && a&rdma.LocalWrite == 0:
		return nil, fmt.Errorf("register memory with %v: remote write and remote atomic require local write", a)
	}
	m := &memoryRegion{pd: p, addr: addr, length: length, access: a, place: -1}
	if err := m.life.Begin("memory of "+p.dev.title, &p.life); err != nil {
		return nil, err
	}
	mem := r.At(addr, length)
	if !p.dev.atZero {
		m.addr = addressOfMemory(mem)
	}
	var errno unix.Errno
	if m.mr, errno = registerMemory(p.pd, mem, addr, p.dev.atZero, a); errno != 0 {
		m.life.Release()
		return nil, refusal(fmt.Sprintf("register %d bytes", length), m, errno, registerRemedies())
	}
	m.lkey, m.rkey = uint32(m.mr.lkey), uint32(m.mr.rkey)
	m.held = r.Register("RDMA device " + p.dev.title)
	return m, nil
}

func registerRemedies() map[unix.Errno]string {
	limit := "raise the limit on pinned memory: LimitMEMLOCK=infinity in a unit, ulimit -l unlimited in a shell; now it is " + memlock()
	return map[unix.Errno]string{unix.ENOMEM: limit, unix.EINVAL: "the device may not take these rights, or as much memory at once"}
}

func (m *memoryRegion) LKey() uint32        { return m.lkey }
func (m *memoryRegion) RKey() uint32        { return m.rkey }
func (m *memoryRegion) Addr() uint64        { return m.addr }
func (m *memoryRegion) Length() uint64      { return m.length }
func (m *memoryRegion) Access() rdma.Access { return m.access }

func (m *memoryRegion) Close() error {
	return m.life.Close(func() error {
		m.hide()
		if errno := C.ud_dereg_mr(m.mr); errno != 0 {
			m.show() // the registration still exists
			return explain(unix.Errno(errno), map[unix.Errno]string{
				unix.EINVAL: windowsLeft, unix.EBUSY: windowsLeft})
		}
		if m.place >= 0 {
			m.pd.memories.give(uint32(m.place))
		}
		m.held.Release()
		return nil
	})
}

const windowsLeft = "memory windows may be bound to it: close or invalidate them before"
