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
)

// sharedQueue is a shared receive queue. Its number is 0 when it is closed.
type sharedQueue struct {
	life   lifetime.Object
	pd     *domain
	srq    *C.struct_ibv_srq
	number C.uintptr_t // srq as the data path uses it
	config rdma.SharedReceiveQueueConfig
}

func (q *sharedQueue) String() string { return q.life.String() }

var _ rdma.SharedReceiveQueue = (*sharedQueue)(nil)

func (p *domain) NewSharedReceiveQueue(c rdma.SharedReceiveQueueConfig) (rdma.SharedReceiveQueue, error) {
	caps := p.dev.caps
	c.SGEs = max(1, c.SGEs)
	if caps.MaxSharedQueues == 0 {
		return nil, fmt.Errorf("shared receive queues: %w by %v", rdma.ErrUnsupported, p.dev)
	}
	if c.Depth < 1 || c.Depth > caps.MaxSharedRequests || c.SGEs > caps.MaxSharedSGEs {
		return nil, fmt.Errorf("make a shared receive queue for %d requests of %d elements: %v has those for 1 to %d, of at most %d",
			c.Depth, c.SGEs, p.dev, caps.MaxSharedRequests, caps.MaxSharedSGEs)
	}
	q := &sharedQueue{pd: p}
	if err := q.life.Begin("shared receive queue of "+p.dev.title, &p.life); err != nil {
		return nil, err
	}
	a := C.struct_ibv_srq_init_attr{attr: C.struct_ibv_srq_attr{max_wr: C.uint32_t(c.Depth), max_sge: C.uint32_t(c.SGEs)}}
	if errno := C.ud_create_srq(p.pd, &a, &q.srq); errno != 0 {
		q.life.Release()
		return nil, refusal(fmt.Sprintf("make for %d requests", c.Depth), q, unix.Errno(errno), nil)
	}
	q.config = rdma.SharedReceiveQueueConfig{Depth: int(a.attr.max_wr), SGEs: int(a.attr.max_sge)}
	q.number = addressOfSRQ(q.srq)
	return q, nil
}

func (q *sharedQueue) Config() rdma.SharedReceiveQueueConfig { return q.config }

func (q *sharedQueue) Limit(n int) error {
	if n < 1 || n > q.config.Depth {
		return fmt.Errorf("limit %d of %v: it must be 1 to %d", n, q, q.config.Depth)
	}
	return q.life.WhileOpen(func() error {
		if errno := C.ud_limit_srq(q.srq, C.uint32_t(n)); errno != 0 {
			return refusal(fmt.Sprintf("ask for an event below %d", n), q, unix.Errno(errno), nil)
		}
		return nil
	})
}

func (q *sharedQueue) Close() error {
	return q.life.Close(func() error {
		if errno := C.ud_destroy_srq(q.srq); errno != 0 {
			return explain(unix.Errno(errno), nil)
		}
		q.number = 0
		return nil
	})
}
