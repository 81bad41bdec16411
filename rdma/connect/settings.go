package connect

import (
	"github.com/unifiedd/unifiedd/rdma"
)

// Settings say how to connect a queue pair. A zero field means zero, and not a default: begin with
// Defaults.
type Settings struct {
	Port      uint8 // of the device, from 1
	PKeyIndex uint16
	// GID is the local one, see rdma.ChooseGID. On InfiniBand it may be zero: packets are then
	// addressed by LID. Ethernet requires one.
	GID          rdma.GIDEntry
	Access       rdma.Access // what the peer may do through the queue pair
	MTU          rdma.MTU    // the largest to use; 0: the port's
	MaxReads     uint8       // outstanding READs and atomics in each direction, if the device supports as many
	Timeout      uint8       // for an ACK, 4.096 µs << Timeout; 0: no timeout
	Retries      uint8       // at most 7, which Soft-RoCE treats as no limit
	RNRRetries   uint8       // at most 7; 7: no limit
	MinRNRTimer  uint8       // how long senders to us wait after receiver-not-ready
	HopLimit     uint8
	TrafficClass uint8
	SL           uint8
	QKey         uint32 // of datagrams; 0: a random one
}

// Defaults returns settings for a healthy network: a timeout of 67 ms for an ACK with six retries,
// and six retries of 0.64 ms after receiver-not-ready.
func Defaults() Settings {
	return Settings{Port: 1, MaxReads: 16, Timeout: 14, Retries: 6, RNRRetries: 6, MinRNRTimer: 12, HopLimit: 64}
}

// AddressOf returns the address of a peer, also for an address handle.
func (s *Settings) AddressOf(remote Parameters) rdma.Address {
	a := rdma.Address{LID: remote.LID, SL: s.SL, Port: s.Port}
	if !s.GID.GID.IsZero() {
		a.GID, a.GIDIndex, a.HopLimit, a.TrafficClass = remote.GID, uint16(s.GID.Index), s.HopLimit, s.TrafficClass
	}
	return a
}

// toInit, toReceive and toSend return the attributes for each state change of a queue pair.
// rdma.CheckChange lists the attributes that each transport requires.
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
