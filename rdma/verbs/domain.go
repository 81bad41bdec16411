//go:build verbs && cgo

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/lifetime"
)

// domain is a protection domain, with the tables that its queue pairs look into.
type domain struct {
	life   lifetime.Object
	dev    *device
	pd     *C.struct_ibv_pd
	tables *C.struct_ud_tables
	// handles and memories are the free places of the tables.
	handles, memories places
}

func (p *domain) String() string { return p.life.String() }

var _ rdma.ProtectionDomain = (*domain)(nil)

func (d *device) NewProtectionDomain() (rdma.ProtectionDomain, error) {
	// Handle 0 is reserved, so that a request without a handle is refused.
	p := &domain{dev: d}
	p.handles = places{what: "address handles", next: 1, end: C.UD_HANDLES}
	p.memories = places{what: "registered regions", end: C.UD_MEMORIES}
	if err := p.life.Begin("protection domain of "+d.title, &d.life); err != nil {
		return nil, err
	}
	var err error
	if p.tables, err = newTables(); err == nil {
		if errno := C.ud_alloc_pd(d.ctx, &p.pd); errno != 0 {
			freeTables(p.tables)
			err = refusal("make", p, unix.Errno(errno), nil)
		}
	}
	if err != nil {
		p.life.Release()
		return nil, err
	}
	return p, nil
}

func (p *domain) Device() rdma.Device { return p.dev }

func (p *domain) Close() error {
	return p.life.Close(func() error {
		if errno := C.ud_dealloc_pd(p.pd); errno != 0 {
			return explain(unix.Errno(errno), nil)
		}
		freeTables(p.tables)
		return nil
	})
}

// places are the slots of a table, taken and freed.
type places struct {
	what      string
	mu        sync.Mutex
	free      []uint32 // returned after use
	next, end uint32
}

func (p *places) take() (uint32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		place := p.free[n-1]
		p.free = p.free[:n-1]
		return place, nil
	}
	if p.next == p.end {
		return 0, fmt.Errorf("a protection domain has room for no more than %d %s: close some", p.end, p.what)
	}
	p.next++
	return p.next - 1, nil
}

func (p *places) give(place uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, place)
}
