//go:build verbs && cgo

package verbs

/*
#cgo noescape ud_exchange
#cgo nocallback ud_exchange
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/unifiedd/unifiedd/rdma"
)

var _ rdma.Exchanger = (*queuePair)(nil)

// Exchange implements rdma.Exchanger. On Soft-RoCE, whose threads need the processor too, it yields
// from time to time if it waits for the peer's messages (Came or Word).
func (q *queuePair) Exchange(x *rdma.Exchange, limit time.Duration) error {
	c, err := q.exchange(x)
	if err != nil || x.Rounds == 0 {
		return err
	}
	c.until = C.ud_now() + C.uint64_t(max(0, limit))
	var times *C.uint64_t
	if x.Posted != nil {
		times = first[C.uint64_t](x.Posted[len(x.Posted)-x.Rounds:])
	}
	var wc [1]rdma.WorkCompletion
	why := C.ud_exchange(&c, first[C.struct_ud_receive](x.Again), first[C.struct_ibv_sge](x.Into), times, first[C.struct_ibv_wc](wc[:]))
	x.Open, x.Taken, x.Rounds, x.Number, x.Begun = int(c.open), int(c.taken), int(c.rounds), byte(c.number), c.begun != 0
	return q.stopped(x, why, c.posted, &wc[0])
}

// exchange checks x and converts it for C.
func (q *queuePair) exchange(x *rdma.Exchange) (c C.struct_ud_exchange, err error) {
	sent, ok := x.Sent.(*completionQueue)
	came, _ := x.Came.(*completionQueue)
	if !ok || came == sent || x.Came != nil && came == nil {
		return c, fmt.Errorf("exchange messages by %v: it takes two completion queues of libibverbs: for requests, and for messages if there are any", q)
	}
	switch {
	case q.number == 0:
		return c, q.life.ClosedError()
	case sent.number == 0:
		return c, sent.life.ClosedError()
	case came != nil && came.number == 0:
		return c, came.life.ClosedError()
	case len(x.Again) > 0 && q.config.Shared != nil:
		return c, fmt.Errorf("exchange messages by %v: it has a shared receive queue: its receives are not posted again here", q)
	case x.Rounds < 0 || x.Ahead < 1 || x.Open < 0 || x.Taken < 0 || x.Posted != nil && len(x.Posted) < x.Rounds || len(x.Into) != len(x.Again):
		return c, fmt.Errorf("exchange messages by %v: %d rounds, %d of %d ahead, %d taken, %d times, %d receives with %d elements do not fit each other",
			q, x.Rounds, x.Open, x.Ahead, x.Taken, len(x.Posted), len(x.Again), len(x.Into))
	}
	c = C.struct_ud_exchange{qp: q.number, tables: q.tables, sent: sent.number, request: *(*C.struct_ud_send)(unsafe.Pointer(&x.Request)),
		element: *(*C.struct_ibv_sge)(unsafe.Pointer(&x.Element)), ahead: C.uint32_t(x.Ahead), open: C.uint32_t(x.Open),
		receives: count(x.Again), taken: C.uint32_t(x.Taken), rounds: C.uint32_t(x.Rounds), shift: C.uint32_t(x.Shift), number: C.uint8_t(x.Number)}
	if came != nil {
		c.came = came.number
	}
	// The words are in a region, which the Go runtime does not manage.
	c.word, c.last = C.uintptr_t(uintptr(unsafe.Pointer(x.Word))), C.uintptr_t(uintptr(unsafe.Pointer(x.Last)))
	if x.Begun {
		c.begun = 1
	}
	if sent.soft && (came != nil || x.Word != nil) {
		c.gives = 1
	}
	return c, nil
}

// stopped returns the error of an exchange that ended early.
func (q *queuePair) stopped(x *rdma.Exchange, why C.enum_ud_stopped, p C.struct_ud_posted, wc *rdma.WorkCompletion) error {
	switch why {
	case C.UD_FAILED:
		return wc.Err()
	case C.UD_NO_SENT:
		return x.Sent.(*completionQueue).pollError()
	case C.UD_NO_CAME:
		return x.Came.(*completionQueue).pollError()
	case C.UD_NO_SEND:
		return q.sendError(int(p.taken), int(p.why), []rdma.SendRequest{x.Request})
	case C.UD_NO_RECEIVE:
		return fmt.Errorf("post receive %d of %d: %w", p.taken+1, len(x.Again), q.receiveError(int(p.why)))
	}
	return nil
}
