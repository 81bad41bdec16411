package manager

import (
	"context"
	"fmt"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/cm"
)

// await waits for the end of a step.
func (m *Manager) await(ctx context.Context, c *connection, step string, want cm.EventKind) (answer, error) {
	select {
	case a := <-c.answers:
		if a.event == want {
			return a, nil
		}
		return a, a.failure(step)
	case <-c.done:
		return answer{}, fmt.Errorf("%s: %w", step, m.why(c))
	case <-ctx.Done():
		return answer{}, fmt.Errorf("%s: %w", step, context.Cause(ctx))
	}
}

// why is nil while a connection is not over.
func (m *Manager) why(c *connection) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return c.cause
}

// end ends a connection that its program gives back, once.
func (m *Manager) end(c *connection) {
	m.do(func(x *machine) {
		m.held--
		x.hangUp(c, cm.ErrClosed)
	})
}

// prepare leads a queue pair to INIT.
func prepare(q rdma.QueuePair, access rdma.Access) error {
	a := rdma.Attributes{State: rdma.Init, Port: 1, Access: access & rdma.Remote}
	return change(q, a, rdma.MaskPKeyIndex|rdma.MaskPort|rdma.MaskAccess)
}

// leadUp leads a queue pair from INIT to RTS, as both sides want.
func leadUp(c *connection, e *cm.End, ours endpoint) error {
	a := rdma.Attributes{State: rdma.ReadyToReceive, Address: c.path(), PathMTU: c.mtu, RemoteQPN: c.theirs.qpn, ReceivePSN: ours.psn, MinRNRTimer: e.MinRNRTimer,
		MaxRemoteReads: min(e.RemoteReads, c.peerState.remoteReads), SendPSN: c.theirs.psn, MaxReads: min(e.Reads, c.peerState.reads), Timeout: c.timeout, Retries: c.retries,
		RNRRetries: c.rnrRetries}
	if e.Timeout != 0 {
		a.Timeout = e.Timeout
	}
	err := change(e.Queue, a, rdma.MaskAddress|rdma.MaskPathMTU|rdma.MaskRemoteQPN|rdma.MaskReceivePSN|rdma.MaskMaxRemoteReads|rdma.MaskMinRNRTimer)
	if err != nil {
		return err
	}
	a.State = rdma.ReadyToSend
	return change(e.Queue, a, rdma.MaskSendPSN|rdma.MaskMaxReads|rdma.MaskTimeout|rdma.MaskRetries|rdma.MaskRNRRetries)
}

func change(q rdma.QueuePair, a rdma.Attributes, given rdma.Mask) error {
	if err := q.Modify(a, given|rdma.MaskState); err != nil {
		return fmt.Errorf("lead queue pair %d to %v: %w", q.QPN(), a.State, err)
	}
	return nil
}

// most refuses private data that is too long.
func most(data []byte, most int) error {
	if len(data) > most {
		return fmt.Errorf("private data of %d bytes: at most %d", len(data), most)
	}
	return nil
}
