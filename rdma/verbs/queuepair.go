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

// queuePair is a queue pair. Its number is 0 when it is closed.
type queuePair struct {
	life   lifetime.Object
	pd     *domain
	qp     *C.struct_ibv_qp
	number C.uintptr_t // qp as the data path uses it
	tables C.uintptr_t // the domain's, likewise
	qpn    uint32
	config rdma.QueuePairConfig
}

func (q *queuePair) String() string { return q.life.String() }

var _ rdma.QueuePair = (*queuePair)(nil)

func (p *domain) NewQueuePair(c rdma.QueuePairConfig) (rdma.QueuePair, error) {
	q := &queuePair{pd: p, config: c, tables: p.address()}
	a, parts, err := p.queuePairParts(&q.config)
	if err != nil {
		return nil, fmt.Errorf("make a queue pair of %s: %w", p.dev.title, err)
	}
	if err := q.life.Begin(fmt.Sprintf("%v queue pair of %s", c.Transport, p.dev.title), parts...); err != nil {
		return nil, err
	}
	if errno := C.ud_create_qp(p.pd, a, &q.qp); errno != 0 {
		q.life.Release()
		return nil, refusal("make", q, unix.Errno(errno), map[unix.Errno]string{
			unix.EINVAL: "fewer work requests, elements or inline bytes may do: " + q.wants()})
	}
	p.dev.pairs.Add(1)
	q.qpn, q.number = uint32(q.qp.qp_num), addressOfQP(q.qp)
	q.life.SetName(fmt.Sprintf("%v queue pair %d of %s", c.Transport, q.qpn, p.dev.title))
	q.config.SendDepth, q.config.RecvDepth = int(a.cap.max_send_wr), int(a.cap.max_recv_wr)
	q.config.SendSGEs, q.config.RecvSGEs = int(a.cap.max_send_sge), int(a.cap.max_recv_sge)
	q.config.InlineBytes = int(a.cap.max_inline_data)
	return q, nil
}

// QueuePairs returns the number of open queue pairs.
func (d *device) QueuePairs() int { return int(d.pairs.Load()) }

// wants describes the requested sizes.
func (q *queuePair) wants() string {
	c := &q.config
	return fmt.Sprintf("asked for were %d and %d requests, of %d and %d elements, with %d bytes inline", c.SendDepth, c.RecvDepth, c.SendSGEs, c.RecvSGEs, c.InlineBytes)
}

// queuePairParts checks a config and converts it for libibverbs. It also returns the objects that
// must stay open while the queue pair is.
func (p *domain) queuePairParts(c *rdma.QueuePairConfig) (*C.struct_ibv_qp_init_attr, []*lifetime.Object, error) {
	if err := p.checkSizes(c); err != nil {
		return nil, nil, err
	}
	send, ok1 := c.SendCQ.(*completionQueue)
	recv, ok2 := c.ReceiveCQ.(*completionQueue)
	if !ok1 || !ok2 || send.dev != p.dev || recv.dev != p.dev {
		return nil, nil, fmt.Errorf("SendCQ and ReceiveCQ must be completion queues of this device")
	}
	a := &C.struct_ibv_qp_init_attr{send_cq: send.cq, recv_cq: recv.cq, qp_type: uint32(c.Transport)}
	parts := []*lifetime.Object{&p.life, &send.life, &recv.life}
	if c.Shared != nil {
		shared, ok := c.Shared.(*sharedQueue)
		if !ok || shared.pd != p {
			return nil, nil, fmt.Errorf("the shared receive queue must be of this protection domain")
		}
		a.srq, parts = shared.srq, append(parts, &shared.life)
		c.RecvDepth, c.RecvSGEs = 0, 0
	}
	if c.SignalAll {
		a.sq_sig_all = 1
	}
	a.cap = C.struct_ibv_qp_cap{max_send_wr: C.uint32_t(c.SendDepth), max_recv_wr: C.uint32_t(c.RecvDepth), max_send_sge: C.uint32_t(c.SendSGEs),
		max_recv_sge: C.uint32_t(c.RecvSGEs), max_inline_data: C.uint32_t(c.InlineBytes)}
	return a, parts, nil
}

// checkSizes compares the sizes with the device's limits.
func (p *domain) checkSizes(c *rdma.QueuePairConfig) error {
	if !c.Transport.Allows(rdma.Send) {
		return fmt.Errorf("%v is none of RC, UC and UD", c.Transport)
	}
	if c.Loans != 0 {
		return fmt.Errorf("receives in frames on loan: %w by libibverbs' devices: post receives", rdma.ErrUnsupported)
	}
	c.SendSGEs, c.RecvSGEs = max(1, c.SendSGEs), max(1, c.RecvSGEs)
	caps := &p.dev.caps
	for _, size := range []struct {
		name      string
		got, most int
	}{
		{"SendDepth", c.SendDepth, caps.MaxWorkRequests}, {"RecvDepth", c.RecvDepth, caps.MaxWorkRequests},
		{"SendSGEs", c.SendSGEs, caps.MaxSGEs}, {"RecvSGEs", c.RecvSGEs, caps.MaxSGEs}, {"InlineBytes", c.InlineBytes, 1 << 20},
	} {
		if size.got < 0 || size.got > size.most {
			return fmt.Errorf("%s %d: the device has at most %d", size.name, size.got, size.most)
		}
	}
	return nil
}

func (q *queuePair) QPN() uint32 { return q.qpn }

func (q *queuePair) Config() rdma.QueuePairConfig { return q.config }

func (q *queuePair) Close() error {
	return q.life.Close(func() error {
		if errno := C.ud_destroy_qp(q.qp); errno != 0 {
			return explain(unix.Errno(errno), nil)
		}
		q.number = 0
		q.pd.dev.pairs.Add(-1)
		return nil
	})
}
