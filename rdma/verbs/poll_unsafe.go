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

// spin is the longest time in C at once. From 10 ms on the Go scheduler has given the thread's place away and looks no more after the call; each shorter one makes it look
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

// spin is Spin for a short time.
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

// bounded is a time to spend in C.
func bounded(limit time.Duration) C.uint32_t { return C.uint32_t(max(0, min(limit, spin))) }

// kernelInvalidated is IB_WC_WITH_INVALIDATE of the kernel's include/rdma/ib_verbs.h, which
// Soft-RoCE gives in place of IBV_WC_WITH_INV. Programs know that bit for a checksum, which Soft-RoCE has
// none of.
const kernelInvalidated rdma.CompletionFlags = 1 << 2

// fixFlags gives completions of Soft-RoCE the flag they should have.
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

// Acknowledge asks the kernel for as many events as there may be, so that the one of a queue that was armed once costs one call and not another that finds no
// more.
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
		q.asked = min(q.asked, 1) // no more came: it is armed once, if at all
	}
	return n, nil
}

// room is how many completions C may give.
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
