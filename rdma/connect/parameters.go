package connect

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/unifiedd/unifiedd/rdma"
)

// Parameters are the values of a queue pair that its peer needs.
type Parameters struct {
	Transport rdma.Transport
	QPN       uint32 // 24 bits
	PSN       uint32 // 24 bits: of the first packet that it sends
	GID       rdma.GID
	LID       uint16   // on InfiniBand
	MTU       rdma.MTU // the largest of its port
	// MaxReads is how many outstanding READs and atomics this side wants, MaxRemoteReads how many
	// of the peer's it accepts.
	MaxReads, MaxRemoteReads uint8
	QKey                     uint32 // of datagrams
}

// FirstQPN is the lowest queue pair number that is not reserved for management.
const FirstQPN = 2

// most24 is the largest number of 24 bits.
const most24 = 1<<24 - 1

// privilegedQKey is the bit of Q_Keys that only privileged programs may use.
const privilegedQKey = 1 << 31

// Check returns what is wrong with the parameters.
func (p *Parameters) Check() error {
	switch {
	case p.Transport != rdma.RC && p.Transport != rdma.UC && p.Transport != rdma.UD:
		return fmt.Errorf("%v is none of RC, UC and UD", p.Transport)
	case p.QPN < FirstQPN || p.QPN > most24:
		return fmt.Errorf("queue pair number 0x%x is not between %d and 0x%x", p.QPN, FirstQPN, most24)
	case p.PSN > most24:
		return fmt.Errorf("packet sequence number 0x%x has more than 24 bits", p.PSN)
	case p.MTU.Bytes() == 0:
		return fmt.Errorf("path MTU number %d is none of 1 to 5", uint32(p.MTU))
	case p.GID.IsZero() && p.LID == 0:
		return fmt.Errorf("there is neither a GID nor a LID")
	case p.QKey&privilegedQKey != 0:
		return fmt.Errorf("Q_Key 0x%x is a privileged one", p.QKey)
	}
	return nil
}

// Path is the result of the agreement of two queue pairs, from the view of one of them.
type Path struct {
	MTU rdma.MTU
	// MaxReads is how many of our READs and atomics may be outstanding, MaxRemoteReads how many of the peer's.
	MaxReads, MaxRemoteReads uint8
}

// Agree returns the smaller of what both sides offer.
func Agree(local, remote Parameters) Path {
	return Path{MTU: min(local.MTU, remote.MTU), MaxReads: min(local.MaxReads, remote.MaxRemoteReads),
		MaxRemoteReads: min(local.MaxRemoteReads, remote.MaxReads)}
}

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

// Prepare brings a queue pair from RESET to INIT, where receives can be posted. It returns the
// parameters that the peer needs, with a random packet sequence number, and for datagrams a random
// Q_Key if the settings have none.
func Prepare(d rdma.Device, q rdma.QueuePair, s Settings) (Parameters, error) {
	p, err := describe(d, q, s)
	if err != nil {
		return p, fmt.Errorf("prepare queue pair %d of %s: %w", q.QPN(), d.Name(), err)
	}
	a, given := s.toInit(p.Transport, p.QKey)
	return p, change(q, a, given)
}

func describe(d rdma.Device, q rdma.QueuePair, s Settings) (Parameters, error) {
	p := Parameters{Transport: q.Config().Transport, QPN: q.QPN(), PSN: random() & most24, GID: s.GID.GID}
	if p.Transport == rdma.UD {
		if p.QKey = s.QKey; p.QKey == 0 {
			p.QKey = random()&^privilegedQKey | 1
		}
	}
	port, err := d.Port(s.Port)
	if err != nil {
		return p, err
	}
	if err := usable(port, s.GID.GID); err != nil {
		return p, err
	}
	p.LID, p.MTU = port.LID, port.ActiveMTU
	if s.MTU != 0 {
		p.MTU = min(p.MTU, s.MTU)
	}
	limits := d.Capabilities()
	p.MaxReads, p.MaxRemoteReads = reads(s.MaxReads, limits.MaxReads), reads(s.MaxReads, limits.MaxRemoteReads)
	return p, p.Check()
}

func usable(port rdma.Port, gid rdma.GID) error {
	if !port.Active {
		return fmt.Errorf("port %d is %s: check its cable, and that its network interface is up", port.Number, port.State)
	}
	if port.LinkLayer == rdma.LinkEthernet && gid.IsZero() {
		return errors.New("a port on Ethernet needs a GID: give its network interface an IP address")
	}
	return nil
}

// reads returns how many READs to request, at most as many as the device supports.
func reads(want uint8, can int) uint8 {
	return min(want, uint8(min(max(can, 0), math.MaxUint8)))
}

// random returns a number from the system's generator, which does not fail.
func random() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:])
	return binary.NativeEndian.Uint32(b[:])
}

// ToReceive brings a queue pair from INIT to RTR: it can receive.
func ToReceive(q rdma.QueuePair, s Settings, local, remote Parameters) error {
	a, given := s.toReceive(local, remote)
	return change(q, a, given)
}

// ToSend brings a queue pair from RTR to RTS: it can send.
func ToSend(q rdma.QueuePair, s Settings, local, remote Parameters) error {
	a, given := s.toSend(local, remote)
	return change(q, a, given)
}

// Lead brings a queue pair of any transport from INIT to RTS.
func Lead(q rdma.QueuePair, s Settings, local, remote Parameters) error {
	if local.Transport != remote.Transport {
		return fmt.Errorf("queue pair %d is %v and the peer's %v", local.QPN, local.Transport, remote.Transport)
	}
	if err := ToReceive(q, s, local, remote); err != nil {
		return err
	}
	return ToSend(q, s, local, remote)
}

func change(q rdma.QueuePair, a rdma.Attributes, given rdma.Mask) error {
	if err := q.Modify(a, given); err != nil {
		return fmt.Errorf("bring queue pair %d to %v: %w", q.QPN(), a.State, err)
	}
	return nil
}
