//go:build verbs && cgo

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
)

// memoryWindow is a window of type 2.
type memoryWindow struct {
	life
	pd   *domain
	mw   *C.struct_ibv_mw
	rkey atomic.Uint32
}

var _ rdma.MemoryWindow = (*memoryWindow)(nil)

func (p *domain) NewWindow() (rdma.MemoryWindow, error) {
	if !p.dev.caps.WindowsType2 {
		return nil, fmt.Errorf("memory windows of type 2: %w by %v: register parts instead", rdma.ErrUnsupported, p.dev)
	}
	w := &memoryWindow{pd: p}
	if err := w.begin("memory window of "+p.dev.title, &p.life); err != nil {
		return nil, err
	}
	if errno := C.ud_alloc_mw(p.pd, &w.mw); errno != 0 {
		w.leave()
		return nil, refusal("make", w, unix.Errno(errno), nil)
	}
	w.rkey.Store(uint32(w.mw.rkey))
	return w, nil
}

func (w *memoryWindow) RKey() uint32 { return w.rkey.Load() }

func (w *memoryWindow) Close() error {
	return w.end(func() error {
		if errno := C.ud_dealloc_mw(w.mw); errno != 0 {
			return refusal("close", w, unix.Errno(errno), nil)
		}
		return nil
	})
}

func (q *queuePair) Bind(id uint64, w rdma.MemoryWindow, m rdma.MemoryRegion, addr, length uint64, a rdma.Access, f rdma.Flags) error {
	window, ok1 := w.(*memoryWindow)
	memory, ok2 := m.(*memoryRegion)
	switch {
	case !ok1 || !ok2 || window.pd != q.pd || memory.pd != q.pd:
		return fmt.Errorf("bind a memory window with %v: window and memory must be of its protection domain", q)
	case memory.access&rdma.BindWindows == 0:
		return fmt.Errorf("bind a memory window with %v: the memory is registered with %v, and not with window bind", q, memory.access)
	}
	return q.whileOpen(func() error { return window.bind(q, id, memory, addr, length, a, f) })
}

func (w *memoryWindow) bind(q *queuePair, id uint64, m *memoryRegion, addr, length uint64, a rdma.Access, f rdma.Flags) error {
	return w.whileOpen(func() error {
		return m.whileOpen(func() error {
			why := C.ud_bind_mw(q.qp, w.mw, m.mr, C.uint64_t(addr), C.uint64_t(length), C.int(a&^rdma.BindWindows), C.uint64_t(id),
				C.int(f&(rdma.Fence|rdma.Signaled)))
			if why != 0 {
				return fmt.Errorf("bind a memory window: %w", q.postError(int(why)))
			}
			w.rkey.Store(uint32(w.mw.rkey))
			return nil
		})
	})
}
