//go:build verbs && cgo

package verbs

/*
#cgo noescape ud_poll
#cgo nocallback ud_poll
#cgo noescape ud_spin
#cgo nocallback ud_spin
#cgo nocallback ud_arm
#cgo nocallback ud_acknowledge
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
)

// spin is the longest time in one call of C. After 10 ms the Go scheduler has already taken the
// thread's P, so it does not look at the thread again. It would look after each shorter call
// (runtime.retake).
const spin = 20 * time.Millisecond

func (q *completionQueue) Poll(dst []rdma.WorkCompletion) (int, error) {
	if q.number == 0 || len(dst) == 0 {
		return 0, q.usable()
	}
	n := C.ud_poll(q.number, first[C.struct_ibv_wc](dst), room(dst))
	if n < 0 {
		return 0, q.pollError()
	}
	q.fixFlags(dst[:n])
	return int(n), nil
}

func (q *completionQueue) Spin(dst []rdma.WorkCompletion, limit time.Duration) (int, error) {
	n, err := q.spin(dst, limit)
	if n > 0 || err != nil || limit <= spin {
		return n, err
	}
	for end := time.Now().Add(limit - spin); n == 0 && err == nil && limit > 0; limit = time.Until(end) {
		n, err = q.spin(dst, limit)
	}
	return n, err
}

// spin implements Spin for at most the duration spin.
func (q *completionQueue) spin(dst []rdma.WorkCompletion, limit time.Duration) (int, error) {
	if q.number == 0 || len(dst) == 0 {
		return 0, q.usable()
	}
	n := C.ud_spin(q.number, first[C.struct_ibv_wc](dst), room(dst), bounded(limit))
	if n < 0 {
		return 0, q.pollError()
	}
	q.fixFlags(dst[:n])
	return int(n), nil
}

// bounded bounds a time to spend in C.
func bounded(limit time.Duration) C.uint32_t { return C.uint32_t(max(0, min(limit, spin))) }

// kernelInvalidated is IB_WC_WITH_INVALIDATE of the kernel's include/rdma/ib_verbs.h, which
// Soft-RoCE sets in place of IBV_WC_WITH_INV. In libibverbs this bit stands for a checksum, which
// Soft-RoCE does not have.
const kernelInvalidated rdma.CompletionFlags = 1 << 2

// fixFlags corrects the flags in completions of Soft-RoCE.
func (q *completionQueue) fixFlags(got []rdma.WorkCompletion) {
	if !q.soft {
		return
	}
	for i := range got {
		if got[i].Flags&kernelInvalidated != 0 {
			got[i].Flags = got[i].Flags&^kernelInvalidated | rdma.HasInvalidated
		}
	}
}

func (q *completionQueue) Arm(solicited bool) error {
	if q.number == 0 {
		return q.life.ClosedError()
	}
	if q.fd < 0 {
		return q.noEvents()
	}
	only := C.int(0)
	if solicited {
		only = 1
	}
	if errno := C.ud_arm(q.number, only); errno != 0 {
		return refusal("arm", q, unix.Errno(errno), nil)
	}
	q.asked++
	return nil
}

// Acknowledge requests only as many events as there may be. So a queue that was armed once costs
// one system call, without a second one that finds no event.
func (q *completionQueue) Acknowledge() (int, error) {
	if q.number == 0 {
		return 0, q.life.ClosedError()
	}
	if q.fd < 0 {
		return 0, q.noEvents()
	}
	most := max(q.asked, 1)
	n := int(C.ud_acknowledge(q.number, C.int(most)))
	if q.asked = max(0, q.asked-n); n < most {
		q.asked = min(q.asked, 1) // there were no more: it is armed at most once
	}
	return n, nil
}

// room returns how many completions C may write.
func room(dst []rdma.WorkCompletion) C.int { return C.int(min(len(dst), math.MaxInt32)) }

func (q *completionQueue) usable() error {
	if q.number == 0 {
		return q.life.ClosedError()
	}
	return nil
}

func (q *completionQueue) pollError() error {
	return fmt.Errorf("poll %v: the device is gone, or the queue overran: see the device's events", q)
}

func (q *completionQueue) noEvents() error {
	return fmt.Errorf("wait for %v: it was made without Events", q)
}
