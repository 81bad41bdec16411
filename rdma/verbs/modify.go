//go:build verbs && cgo

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
)

func (q *queuePair) State() (s rdma.State, err error) {
	err = q.life.WhileOpen(func() error {
		s, _, err = q.state()
		return err
	})
	return s, err
}

// state queries the state and the port.
func (q *queuePair) state() (rdma.State, uint8, error) {
	a, err := q.query(rdma.MaskState | rdma.MaskPort)
	return rdma.State(a.qp_state), uint8(a.port_num), err
}

func (q *queuePair) query(asked rdma.Mask) (a C.struct_ibv_qp_attr, err error) {
	var init C.struct_ibv_qp_init_attr
	if errno := C.ud_query_qp(q.qp, &a, C.int(asked), &init); errno != 0 {
		return a, refusal("ask for the state", q, unix.Errno(errno), nil)
	}
	return a, nil
}

// queried are the attributes that Query requests.
const queried = rdma.MaskState | rdma.MaskAccess | rdma.MaskPKeyIndex | rdma.MaskPort | rdma.MaskQKey | rdma.MaskAddress | rdma.MaskPathMTU |
	rdma.MaskTimeout | rdma.MaskRetries | rdma.MaskRNRRetries | rdma.MaskReceivePSN | rdma.MaskMaxReads | rdma.MaskMinRNRTimer |
	rdma.MaskSendPSN | rdma.MaskMaxRemoteReads | rdma.MaskRemoteQPN

func (q *queuePair) Query() (a rdma.Attributes, err error) {
	err = q.life.WhileOpen(func() error {
		from, err := q.query(queried)
		a = attributesOf(&from)
		return err
	})
	return a, err
}

func attributesOf(a *C.struct_ibv_qp_attr) rdma.Attributes {
	return rdma.Attributes{
		State: rdma.State(a.qp_state), CurrentState: rdma.State(a.cur_qp_state), Access: rdma.Access(a.qp_access_flags),
		PKeyIndex: uint16(a.pkey_index), Port: uint8(a.port_num), QKey: uint32(a.qkey), Address: addressOf(a.ah_attr),
		PathMTU: rdma.MTU(a.path_mtu), Timeout: uint8(a.timeout), Retries: uint8(a.retry_cnt), RNRRetries: uint8(a.rnr_retry),
		MinRNRTimer: uint8(a.min_rnr_timer), SendPSN: uint32(a.sq_psn), ReceivePSN: uint32(a.rq_psn), RemoteQPN: uint32(a.dest_qp_num),
		MaxReads: uint8(a.max_rd_atomic), MaxRemoteReads: uint8(a.max_dest_rd_atomic),
	}
}

func (q *queuePair) Modify(a rdma.Attributes, given rdma.Mask) error {
	return q.life.WhileOpen(func() error {
		from, port, err := q.state()
		if err != nil {
			return err
		}
		if given&rdma.MaskState == 0 {
			a.State = from
		}
		if err := rdma.CheckChange(q.config.Transport, from, a.State, given); err != nil {
			return fmt.Errorf("modify %v: %w", q, err)
		}
		to, err := q.attributes(a, given, port)
		if err != nil {
			return fmt.Errorf("modify %v: %w", q, err)
		}
		if errno := C.ud_modify_qp(q.qp, &to, C.int(given)); errno != 0 {
			return refusal(fmt.Sprintf("modify from %v to %v", from, a.State), q, unix.Errno(errno), routeRemedies)
		}
		return nil
	})
}

// attributes checks the given attributes and converts them to those of libibverbs.
func (q *queuePair) attributes(a rdma.Attributes, given rdma.Mask, port uint8) (to C.struct_ibv_qp_attr, err error) {
	if given&rdma.MaskPort != 0 {
		port = a.Port
	}
	if a.Address.Port == 0 {
		a.Address.Port = port
	}
	if err := errors.Join(a.CheckRanges(given), q.checkMTU(&a, given, port)); err != nil {
		return to, err
	}
	to = C.struct_ibv_qp_attr{
		qp_state: uint32(a.State), cur_qp_state: uint32(a.CurrentState), qp_access_flags: C.uint(a.Access & rdma.Remote),
		pkey_index: C.uint16_t(a.PKeyIndex), port_num: C.uint8_t(a.Port), qkey: C.uint32_t(a.QKey), path_mtu: uint32(a.PathMTU),
		timeout: C.uint8_t(a.Timeout), retry_cnt: C.uint8_t(a.Retries), rnr_retry: C.uint8_t(a.RNRRetries),
		min_rnr_timer: C.uint8_t(a.MinRNRTimer), sq_psn: C.uint32_t(a.SendPSN), rq_psn: C.uint32_t(a.ReceivePSN),
		dest_qp_num: C.uint32_t(a.RemoteQPN), max_rd_atomic: C.uint8_t(a.MaxReads), max_dest_rd_atomic: C.uint8_t(a.MaxRemoteReads),
	}
	if given&rdma.MaskAddress != 0 {
		to.ah_attr, err = q.pd.dev.address(a.Address)
	}
	return to, err
}

// checkMTU refuses a path MTU that the port does not carry. Soft-RoCE would accept it and then send
// nothing.
func (q *queuePair) checkMTU(a *rdma.Attributes, given rdma.Mask, port uint8) error {
	if given&rdma.MaskPathMTU == 0 {
		return nil
	}
	if a.PathMTU.Bytes() == 0 {
		return fmt.Errorf("path MTU number %d is none of the five", uint32(a.PathMTU))
	}
	p, err := q.pd.dev.Port(port)
	if err == nil && a.PathMTU > p.ActiveMTU {
		err = fmt.Errorf("path MTU %v: port %d of %s carries at most %v: raise the MTU of its network interface", a.PathMTU, port, q.pd.dev.title, p.ActiveMTU)
	}
	return err
}
