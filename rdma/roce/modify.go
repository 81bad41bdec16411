package roce

import (
	"context"
	"fmt"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/transport"
)

// Modify changes the state. If the peer's address is given, it waits until the route is known.
func (q *queuePair) Modify(a rdma.Attributes, given rdma.Mask) error {
	return q.life.WhileOpen(func() error { return q.modify(&a, given) })
}

func (q *queuePair) modify(a *rdma.Attributes, given rdma.Mask) (err error) {
	if given&rdma.MaskPort != 0 && q.dev.hasPort(a.Port) != nil {
		return fmt.Errorf("modify %v: %w", q, q.dev.hasPort(a.Port))
	}
	var to path
	leads := given&rdma.MaskAddress != 0 && q.config.Transport != rdma.UD
	if leads {
		if err := q.check(a, given); err != nil {
			return err
		}
		remote := a.RemoteQPN
		if given&rdma.MaskRemoteQPN == 0 {
			q.dev.locked(func() { remote = q.qp.Query().RemoteQPN })
		}
		if to, err = q.dev.resolve(context.Background(), &a.Address, q.qp.Number(), remote); err != nil {
			return fmt.Errorf("modify %v: %w", q, err)
		}
	}
	q.dev.locked(func() { err = q.change(a, given, to, leads) })
	return err
}

// check finds errors before Modify resolves a route, so that a bad call does not wait.
func (q *queuePair) check(a *rdma.Attributes, given rdma.Mask) error {
	to := q.qp.State()
	if given&rdma.MaskState != 0 {
		to = a.State
	}
	if err := rdma.CheckChange(q.config.Transport, q.qp.State(), to, given); err != nil {
		return fmt.Errorf("modify %v: %w", q, err)
	}
	if err := a.CheckRanges(given); err != nil {
		return fmt.Errorf("modify %v: %w", q, err)
	}
	return nil
}

// change makes the engine change the queue pair, with a new path if the address was given. The
// caller holds the device's lock.
func (q *queuePair) change(a *rdma.Attributes, given rdma.Mask, to path, leads bool) error {
	m := &q.dev.datapath
	peer := transport.Peer(0)
	if leads {
		peer = m.addPath(to)
	}
	if err := q.qp.Modify(*a, given, peer); err != nil {
		if leads {
			m.dropPath(peer)
		}
		return err
	}
	if leads {
		if q.led {
			m.dropPath(q.peer)
		}
		q.peer, q.led, q.at = peer, true, a.Address
	}
	return nil
}
