package pingpong

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// Defaults that the programs assume.
const (
	Port       = 18515        // TCP
	Size       = 4096         // bytes of a message
	Iterations = 1000         // messages each way
	RecvDepth  = 500          // receives posted
	MTU        = rdma.MTU1024 // of RC and UC
	QKey       = 0x11111111   // of datagrams
)

// Bytes is the length of a destination on the wire, including the zero byte at its end.
const Bytes = 52

// Destination describes the queue pair of one side.
type Destination struct {
	LID uint16 // 0 on Ethernet
	QPN uint32
	PSN uint32
	GID rdma.GID
}

// Encode returns the text that the programs print and parse.
func (d *Destination) Encode() []byte {
	return fmt.Appendf(nil, "%04x:%06x:%06x:%x\x00", d.LID, d.QPN, d.PSN, d.GID[:])
}

// Decode reads exactly the output of Encode, and refuses all other input.
func Decode(b []byte) (Destination, error) {
	var d Destination
	if len(b) == Bytes {
		d.LID, d.QPN, d.PSN = uint16(number(b[:4])), number(b[5:11]), number(b[12:18])
		_, _ = hex.Decode(d.GID[:], b[19:51])
	}
	if !bytes.Equal(d.Encode(), b) {
		return Destination{}, fmt.Errorf("%q is not what a pingpong says of its queue pair", b)
	}
	return d, nil
}

// number parses hexadecimal digits. For other input it returns a number whose digits differ from
// the input.
func number(b []byte) uint32 {
	n, _ := strconv.ParseUint(string(b), 16, 32)
	return uint32(n)
}

// Of returns the destination of a queue pair of ours.
func Of(p connect.Parameters) Destination {
	return Destination{LID: p.LID, QPN: p.QPN, PSN: p.PSN, GID: p.GID}
}

// Parameters returns the parameters of a peer, with the values that the programs assume. mtu is the
// MTU that our side was started with.
func (d *Destination) Parameters(t rdma.Transport, mtu rdma.MTU) connect.Parameters {
	p := connect.Parameters{Transport: t, QPN: d.QPN, PSN: d.PSN, GID: d.GID, LID: d.LID, MTU: mtu, MaxReads: 1, MaxRemoteReads: 1}
	if t == rdma.UD {
		p.QKey = QKey
	}
	return p
}

// Settings returns the settings of the programs for a queue pair: seven retries, no limit for
// receiver-not-ready, and no access of the peer but SEND. The caller chooses the GID.
func Settings() connect.Settings {
	s := connect.Defaults()
	s.MTU, s.MaxReads, s.Retries, s.RNRRetries, s.HopLimit, s.QKey = MTU, 1, 7, 7, 1, QKey
	return s
}
