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
	resource
	pd   *domain
	mw   *C.struct_ibv_mw
	rkey atomic.Uint32
	with *resource // the queue pair that it was bound with last
}

var _ rdma.MemoryWindow = (*memoryWindow)(nil)

func (p *domain) NewWindow() (rdma.MemoryWindow, error) {
	if !p.dev.windows {
		return nil, fmt.Errorf("memory windows of type 2: %w by %v, or not so that they hold a peer to their bounds: register parts instead",
			rdma.ErrUnsupported, p.dev)
	}
	w := &memoryWindow{pd: p}
	if err := w.begin("memory window of "+p.dev.title, &p.resource); err != nil {
		return nil, err
	}
	if errno := C.ud_alloc_mw(p.pd, &w.mw); errno != 0 {
		w.release()
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
	return window.whileOpen(func() error {
		return memory.whileOpen(func() error { return window.bind(q, id, memory, addr, length, a, f) })
	})
}

// bind has the queue pair stay until the window is closed, or bound with another: a device may
// wait for the window to go, before the queue pair does, for ever. Window and memory are locked.
func (w *memoryWindow) bind(q *queuePair, id uint64, m *memoryRegion, addr, length uint64, a rdma.Access, f rdma.Flags) error {
	if w.with == &q.resource {
		return w.post(q, id, m, addr, length, a, f)
	}
	if err := q.retain(&w.resource); err != nil {
		return err
	}
	left := &q.resource
	err := w.post(q, id, m, addr, length, a, f)
	if err == nil {
		left, w.with = w.with, &q.resource
		w.parts = []*resource{&w.pd.resource, w.with}
	}
	if left != nil {
		left.drop(&w.resource)
	}
	return err
}

func (w *memoryWindow) post(q *queuePair, id uint64, m *memoryRegion, addr, length uint64, a rdma.Access, f rdma.Flags) error {
	return q.whileOpen(func() error {
		why := C.ud_bind_mw(q.qp, w.mw, m.mr, C.uint64_t(addr), C.uint64_t(length), C.int(a&^rdma.BindWindows), C.uint64_t(id),
			C.int(f&(rdma.Fence|rdma.Signaled)))
		if why != 0 {
			return fmt.Errorf("bind a memory window: %w", q.postError(int(why)))
		}
		w.rkey.Store(uint32(w.mw.rkey))
		return nil
	})
}
