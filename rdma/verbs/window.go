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
	"github.com/unifiedd/unifiedd/rdma/lifetime"
)

// memoryWindow is a window of type 2.
type memoryWindow struct {
	life lifetime.Object
	pd   *domain
	mw   *C.struct_ibv_mw
	rkey atomic.Uint32
	with *lifetime.Object // the queue pair that it was last bound with
}

func (w *memoryWindow) String() string { return w.life.String() }

var _ rdma.MemoryWindow = (*memoryWindow)(nil)

func (p *domain) NewWindow() (rdma.MemoryWindow, error) {
	if !p.dev.windows {
		return nil, fmt.Errorf("memory windows of type 2: %w by %v, or not so that they hold a peer to their bounds: register parts instead",
			rdma.ErrUnsupported, p.dev)
	}
	w := &memoryWindow{pd: p}
	if err := w.life.Begin("memory window of "+p.dev.title, &p.life); err != nil {
		return nil, err
	}
	if errno := C.ud_alloc_mw(p.pd, &w.mw); errno != 0 {
		w.life.Release()
		return nil, refusal("make", w, unix.Errno(errno), nil)
	}
	w.rkey.Store(uint32(w.mw.rkey))
	return w, nil
}

func (w *memoryWindow) RKey() uint32 { return w.rkey.Load() }

func (w *memoryWindow) Close() error {
	return w.life.Close(func() error {
		if errno := C.ud_dealloc_mw(w.mw); errno != 0 {
			return explain(unix.Errno(errno), nil)
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
	return window.life.WhileOpen(func() error {
		return memory.life.WhileOpen(func() error { return window.bind(q, id, memory, addr, length, a, f) })
	})
}

// bind makes the queue pair stay open until the window is closed or bound with another one: a
// device may wait forever if the queue pair is destroyed before the window. Window and memory are
// locked.
func (w *memoryWindow) bind(q *queuePair, id uint64, m *memoryRegion, addr, length uint64, a rdma.Access, f rdma.Flags) error {
	if w.with == &q.life {
		return w.post(q, id, m, addr, length, a, f)
	}
	if err := w.life.AddParent(&q.life); err != nil {
		return err
	}
	left := &q.life
	err := w.post(q, id, m, addr, length, a, f)
	if err == nil {
		left, w.with = w.with, &q.life
	}
	if left != nil {
		w.life.RemoveParent(left)
	}
	return err
}

func (w *memoryWindow) post(q *queuePair, id uint64, m *memoryRegion, addr, length uint64, a rdma.Access, f rdma.Flags) error {
	return q.life.WhileOpen(func() error {
		why := C.ud_bind_mw(q.qp, w.mw, m.mr, C.uint64_t(addr), C.uint64_t(length), C.int(a&^rdma.BindWindows), C.uint64_t(id),
			C.int(f&(rdma.Fence|rdma.Signaled)))
		if why != 0 {
			return fmt.Errorf("bind a memory window: %w", q.postError(int(why)))
		}
		w.rkey.Store(uint32(w.mw.rkey))
		return nil
	})
}
