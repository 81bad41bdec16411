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

// completionQueue is a completion queue. Its number is 0 when it is closed.
type completionQueue struct {
	life   lifetime.Object
	dev    *device
	cq     *C.struct_ibv_cq
	number C.uintptr_t // cq as the data path uses it
	depth  atomic.Int64
	soft   bool // a queue of Soft-RoCE
	fd     int
	asked  int // upper bound of unread events: times armed since the last read; owned by the polling thread
}

func (q *completionQueue) String() string { return q.life.String() }

var _ rdma.CompletionQueue = (*completionQueue)(nil)

func (d *device) NewCompletionQueue(c rdma.CompletionQueueConfig) (rdma.CompletionQueue, error) {
	if c.Depth < 1 || c.Depth > d.caps.MaxCompletions {
		return nil, fmt.Errorf("make a completion queue for %d: %v has those for 1 to %d", c.Depth, d, d.caps.MaxCompletions)
	}
	if n := int(d.ctx.num_comp_vectors); c.Vector < 0 || c.Vector >= n {
		return nil, fmt.Errorf("make a completion queue with vector %d: %v has %d, numbered from 0", c.Vector, d, n)
	}
	q := &completionQueue{dev: d, fd: -1, soft: d.caps.VendorID == softRoCE}
	if err := q.life.Begin("completion queue of "+d.title, &d.life); err != nil {
		return nil, err
	}
	events := C.int(0)
	if c.Events {
		events = 1
	}
	if errno := C.ud_create_cq(d.ctx, C.int(c.Depth), events, C.int(c.Vector), &q.cq); errno != 0 {
		q.life.Release()
		return nil, refusal(fmt.Sprintf("make for %d", c.Depth), q, unix.Errno(errno), nil)
	}
	if c.Events {
		q.fd = int(q.cq.channel.fd)
	}
	q.depth.Store(int64(q.cq.cqe))
	q.number = addressOfCQ(q.cq)
	return q, nil
}

func (q *completionQueue) Depth() int { return int(q.depth.Load()) }

func (q *completionQueue) FD() int { return q.fd }

func (q *completionQueue) Resize(depth int) error {
	if most := q.dev.caps.MaxCompletions; depth < 1 || depth > most {
		return fmt.Errorf("resize %v to %d: %v has those for 1 to %d", q, depth, q.dev, most)
	}
	return q.life.WhileOpen(func() error {
		errno := unix.Errno(C.ud_resize_cq(q.cq, C.int(depth)))
		switch errno {
		case 0:
			q.depth.Store(int64(q.cq.cqe))
			return nil
		case unix.ENOSYS, unix.EOPNOTSUPP:
			return fmt.Errorf("resize %v: %w by the device", q, rdma.ErrUnsupported)
		}
		return refusal(fmt.Sprintf("resize to %d", depth), q, errno, map[unix.Errno]string{
			unix.EINVAL: "what is in it must fit"})
	})
}

func (q *completionQueue) Close() error {
	return q.life.Close(func() error {
		if errno := C.ud_destroy_cq(q.cq); errno != 0 {
			return explain(unix.Errno(errno), nil)
		}
		q.number = 0
		return nil
	})
}
