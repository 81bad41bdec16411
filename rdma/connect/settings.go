package connect

import (
	"github.com/unifiedd/unifiedd/rdma"
)

// Settings are how a queue pair of ours is to be connected. The zero value of a field is that
// value, not a default: begin with Defaults.
type Settings struct {
	Port      uint8 // of the device, from 1
	PKeyIndex uint16
	// GID is ours, see rdma.ChooseGID. Without one, on InfiniBand, packets go by LID.
	GID          rdma.GIDEntry
	Access       rdma.Access // what the peer may do through the queue pair
	MTU          rdma.MTU    // the most to use; 0: what the port has
	MaxReads     uint8       // READs and atomics outstanding each way, as far as the device goes
	Timeout      uint8       // for an acknowledgement, 4.096 µs << it; 0 waits for ever
	Retries      uint8       // at most 7, which Soft-RoCE takes for "for ever"
	RNRRetries   uint8       // at most 7, which goes on for ever
	MinRNRTimer  uint8       // what senders to us are told to wait for a receive
	HopLimit     uint8
	TrafficClass uint8
	SL           uint8
	QKey         uint32 // of datagrams; 0: a random one
}

// Defaults are good for a network that works: an acknowledgement is waited for 67 ms and six times
// more, a receive of the peer's six times 0.64 ms.
func Defaults() Settings {
	return Settings{Port: 1, MaxReads: 16, Timeout: 14, Retries: 6, RNRRetries: 6, MinRNRTimer: 12, HopLimit: 64}
}

// AddressOf is the way to a peer, for an address handle too.
func (s *Settings) AddressOf(remote Parameters) rdma.Address {
	a := rdma.Address{LID: remote.LID, SL: s.SL, Port: s.Port}
	if !s.GID.GID.IsZero() {
		a.GID, a.GIDIndex, a.HopLimit, a.TrafficClass = remote.GID, uint8(s.GID.Index), s.HopLimit, s.TrafficClass
	}
	return a
}

// toInit, toReceive and toSend are what to give a queue pair of a transport on its way, in
// the order of their names. rdma.CheckChange has what each transport needs.
func (s *Settings) toInit(t rdma.Transport, qkey uint32) (rdma.Attributes, rdma.Mask) {
	a := rdma.Attributes{State: rdma.Init, PKeyIndex: s.PKeyIndex, Port: s.Port}
	if t == rdma.UD {
		a.QKey = qkey
		return a, rdma.MaskState | rdma.MaskPKeyIndex | rdma.MaskPort | rdma.MaskQKey
	}
	a.Access = s.Access
	return a, rdma.MaskState | rdma.MaskPKeyIndex | rdma.MaskPort | rdma.MaskAccess
}

func (s *Settings) toReceive(local, remote Parameters) (rdma.Attributes, rdma.Mask) {
	a, given := rdma.Attributes{State: rdma.ReadyToReceive}, rdma.MaskState
	if local.Transport == rdma.UD {
		return a, given
	}
	path := Agree(local, remote)
	a.Address, a.PathMTU, a.RemoteQPN, a.ReceivePSN = s.AddressOf(remote), path.MTU, remote.QPN, remote.PSN
	given |= rdma.MaskAddress | rdma.MaskPathMTU | rdma.MaskRemoteQPN | rdma.MaskReceivePSN
	if local.Transport == rdma.RC {
		a.MaxRemoteReads, a.MinRNRTimer = path.MaxRemoteReads, s.MinRNRTimer
		given |= rdma.MaskMaxRemoteReads | rdma.MaskMinRNRTimer
	}
	return a, given
}

func (s *Settings) toSend(local, remote Parameters) (rdma.Attributes, rdma.Mask) {
	a, given := rdma.Attributes{State: rdma.ReadyToSend, SendPSN: local.PSN}, rdma.MaskState|rdma.MaskSendPSN
	if local.Transport == rdma.RC {
		a.Timeout, a.Retries, a.RNRRetries, a.MaxReads = s.Timeout, s.Retries, s.RNRRetries, Agree(local, remote).MaxReads
		given |= rdma.MaskTimeout | rdma.MaskRetries | rdma.MaskRNRRetries | rdma.MaskMaxReads
	}
	return a, given
}
