package connect

import (
	"fmt"

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
