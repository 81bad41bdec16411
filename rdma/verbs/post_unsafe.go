//go:build verbs && cgo

package verbs

/*
#cgo noescape ud_post_send
#cgo nocallback ud_post_send
#cgo noescape ud_post_receive
#cgo nocallback ud_post_receive
#cgo noescape ud_post_shared
#cgo nocallback ud_post_shared
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"math"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/lifetime"
)

// first returns the address of a list in C's form. Both forms have the same layout, which a test
// compares with the headers, and no pointers. C does not keep the address.
func first[To, From any](list []From) *To { return (*To)(unsafe.Pointer(unsafe.SliceData(list))) }

// count returns the length of a list for C. Another call posts the rest of a longer list.
func count[T any](list []T) C.uint32_t { return C.uint32_t(min(len(list), math.MaxInt32)) }

func (q *queuePair) PostSend(requests []rdma.SendRequest, sges []rdma.SGE) (int, error) {
	if q.number == 0 {
		return 0, q.life.ClosedError()
	}
	if len(requests) == 0 {
		return 0, nil
	}
	p := C.ud_post_send(q.number, q.tables, first[C.struct_ud_send](requests), count(requests), first[C.struct_ibv_sge](sges), count(sges))
	if p.why != 0 {
		return int(p.taken), q.sendError(int(p.taken), int(p.why), requests)
	}
	return int(p.taken), nil
}

func (q *queuePair) PostReceive(requests []rdma.ReceiveRequest, sges []rdma.SGE) (int, error) {
	if q.number == 0 {
		return 0, q.life.ClosedError()
	}
	if q.config.Shared != nil {
		return 0, fmt.Errorf("post a receive: %v has a shared receive queue: post to that", q)
	}
	if len(requests) == 0 {
		return 0, nil
	}
	p := C.ud_post_receive(q.number, first[C.struct_ud_receive](requests), count(requests), first[C.struct_ibv_sge](sges), count(sges))
	if p.why != 0 {
		return int(p.taken), fmt.Errorf("post receive %d of %d: %w", p.taken+1, len(requests), q.receiveError(int(p.why)))
	}
	return int(p.taken), nil
}

func (q *sharedQueue) PostReceive(requests []rdma.ReceiveRequest, sges []rdma.SGE) (int, error) {
	if q.number == 0 {
		return 0, q.life.ClosedError()
	}
	if len(requests) == 0 {
		return 0, nil
	}
	p := C.ud_post_shared(q.number, first[C.struct_ud_receive](requests), count(requests), first[C.struct_ibv_sge](sges), count(sges))
	if p.why != 0 {
		return int(p.taken), fmt.Errorf("post receive %d of %d: %w", p.taken+1, len(requests), queueError(&q.life, int(p.why), q.config.Depth, q.config.SGEs))
	}
	return int(p.taken), nil
}

// sendError returns why the first request that was not accepted was refused.
func (q *queuePair) sendError(taken, why int, requests []rdma.SendRequest) error {
	if taken == len(requests) {
		return fmt.Errorf("post %d sends: %v has them, but the device was not told: %w", taken, q, unix.Errno(why))
	}
	r := &requests[taken]
	if why == C.UD_OPERATION {
		return fmt.Errorf("post send %d of %d: %v: %w by %v: %v", taken+1, len(requests), q, rdma.ErrUnsupported, q.config.Transport, r.Op)
	}
	return fmt.Errorf("post send %d of %d (%v, %d elements): %w", taken+1, len(requests), r.Op, r.SGEs, q.postError(why))
}

// postError returns why a send request was refused.
func (q *queuePair) postError(why int) error {
	switch why {
	case C.UD_STATE:
		return fmt.Errorf("%v: %w: sends can be posted from RTS on", q, rdma.ErrState)
	case C.UD_HANDLE:
		return fmt.Errorf("%v: its Handle is none of its protection domain's: %w", q, unix.EINVAL)
	case C.UD_INLINE_MEMORY:
		return fmt.Errorf("%v: inline data must lie in a region registered whole, and have its lkey: %w", q, unix.EFAULT)
	case int(unix.EINVAL):
		return fmt.Errorf("%v: %w: it takes %d elements, %d bytes inline, and atomics of 8 bytes at addresses that are multiples of 8", q, unix.EINVAL,
			q.config.SendSGEs, q.config.InlineBytes)
	}
	return queueError(&q.life, why, q.config.SendDepth, q.config.SendSGEs)
}

func (q *queuePair) receiveError(why int) error {
	if why == C.UD_STATE {
		return fmt.Errorf("%v: %w: receives can be posted from INIT on", q, rdma.ErrState)
	}
	return queueError(&q.life, why, q.config.RecvDepth, q.config.RecvSGEs)
}

// queueError returns the errors that all queues of work requests have in common.
func queueError(q *lifetime.Object, why, depth, sges int) error {
	switch why {
	case C.UD_SHORT_LIST:
		return fmt.Errorf("%v: it has more elements than are left of the list: %w", q, unix.EINVAL)
	case int(unix.ENOMEM):
		return fmt.Errorf("%v: the queue of %d is full: %w", q, depth, unix.ENOMEM)
	case int(unix.EINVAL):
		return fmt.Errorf("%v: %w: a request has at most %d elements", q, unix.EINVAL, sges)
	}
	return fmt.Errorf("%v: %w", q, unix.Errno(why))
}
