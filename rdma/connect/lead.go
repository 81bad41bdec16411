package connect

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/unifiedd/unifiedd/rdma"
)

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
