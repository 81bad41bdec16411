package cm

import (
	"fmt"

	"github.com/unifiedd/unifiedd/rdma"
)

// known are the attributes that this package sets.
const known = rdma.MaskState | rdma.MaskAccess | rdma.MaskPKeyIndex | rdma.MaskPort | rdma.MaskAddress | rdma.MaskPathMTU | rdma.MaskTimeout |
	rdma.MaskRetries | rdma.MaskRNRRetries | rdma.MaskReceivePSN | rdma.MaskMaxReads | rdma.MaskMinRNRTimer | rdma.MaskSendPSN |
	rdma.MaskMaxRemoteReads | rdma.MaskRemoteQPN

// attributes queries the attributes for changing a queue pair to a state.
func (i *identifier) attributes(to rdma.State) (rdma.Attributes, rdma.Mask, error) {
	var s state
	err := i.channel.do(func(fd int) error {
		command := attributes{id: i.id, state: uint32(to)}
		return ask(fd, cmdAttributes, &command, &command.response, &s)
	})
	if err != nil {
		return rdma.Attributes{}, 0, refusal(fmt.Sprintf("ask rdma_cm how to lead a queue pair to %v", to), err)
	}
	a := rdma.Attributes{State: to, PKeyIndex: s.pkey, Port: s.port, Address: s.address.of(), PathMTU: rdma.MTU(s.mtu),
		Timeout: s.timeout, Retries: s.retries, RNRRetries: s.rnrRetries, MinRNRTimer: s.minRNR, SendPSN: s.sendPSN, ReceivePSN: s.receivePSN,
		RemoteQPN: s.qpn, MaxReads: s.reads, MaxRemoteReads: s.remoteReads}
	return a, rdma.Mask(s.mask)&known | rdma.MaskState, nil
}

func (p *path) of() rdma.Address {
	a := rdma.Address{LID: p.lid, SL: p.sl, PathBits: p.pathBits, StaticRate: p.staticRate, Port: p.port}
	if p.global != 0 {
		a.GID, a.GIDIndex, a.HopLimit, a.TrafficClass, a.FlowLabel = p.gid, uint16(p.index), p.hops, p.class, p.flow
	}
	return a
}

// prepare brings a queue pair to INIT. iWARP has no P_Keys, and its devices ignore the index.
func (i *identifier) prepare(q rdma.QueuePair, access rdma.Access) error {
	a, given, err := i.attributes(rdma.Init)
	if err != nil {
		return err
	}
	a.Access = access & rdma.Remote
	return change(q, a, given|rdma.MaskAccess|rdma.MaskPKeyIndex)
}

// lead brings a queue pair from INIT to RTS, with the values that both sides have announced. An
// iWARP device does that itself when it is connected, and the kernel has no path for it.
func (i *identifier) lead(e *End, s said) error {
	a, given, err := i.attributes(rdma.ReadyToReceive)
	if err != nil {
		return err
	}
	if given&rdma.MaskAddress == 0 {
		return nil
	}
	a.MaxRemoteReads, a.MinRNRTimer = min(e.RemoteReads, s.remoteReads), e.MinRNRTimer
	if err := change(e.Queue, a, given); err != nil {
		return err
	}
	if a, given, err = i.attributes(rdma.ReadyToSend); err != nil {
		return err
	}
	a.MaxReads = min(e.Reads, s.reads)
	if e.Timeout != 0 {
		a.Timeout = e.Timeout
	}
	return change(e.Queue, a, given)
}

func change(q rdma.QueuePair, a rdma.Attributes, given rdma.Mask) error {
	if err := q.Modify(a, given); err != nil {
		return fmt.Errorf("bring queue pair %d to %v: %w", q.QPN(), a.State, err)
	}
	return nil
}
