package pingpong

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// What the programs take for granted unless told otherwise.
const (
	Port       = 18515        // TCP
	Size       = 4096         // bytes of a message
	Iterations = 1000         // messages each way
	RecvDepth  = 500          // receives posted
	MTU        = rdma.MTU1024 // of RC and UC
	QKey       = 0x11111111   // of datagrams
)

// Bytes is the length of a destination on the wire, with the zero byte at its end.
const Bytes = 52

// Destination is what one side says of its queue pair.
type Destination struct {
	LID uint16 // 0 on Ethernet
	QPN uint32
	PSN uint32
	GID rdma.GID
}

// Encode is the text, as the programs print and parse it.
func (d *Destination) Encode() []byte {
	return fmt.Appendf(nil, "%04x:%06x:%06x:%x\x00", d.LID, d.QPN, d.PSN, d.GID[:])
}

// Decode reads exactly what Encode makes, and refuses all else.
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

// number reads hexadecimal digits; of anything else it makes a number with other digits.
func number(b []byte) uint32 {
	n, _ := strconv.ParseUint(string(b), 16, 32)
	return uint32(n)
}

// Of is the destination of a queue pair of ours.
func Of(p connect.Parameters) Destination {
	return Destination{LID: p.LID, QPN: p.QPN, PSN: p.PSN, GID: p.GID}
}

// Parameters are a peer's with what the programs take for granted; the MTU is that which our side
// was started with.
func (d *Destination) Parameters(t rdma.Transport, mtu rdma.MTU) connect.Parameters {
	p := connect.Parameters{Transport: t, QPN: d.QPN, PSN: d.PSN, GID: d.GID, LID: d.LID, MTU: mtu, MaxReads: 1, MaxRemoteReads: 1}
	if t == rdma.UD {
		p.QKey = QKey
	}
	return p
}

// Settings are how the programs connect a queue pair: they retry seven times, wait for receives
// for ever, and let the peer do nothing but SEND. The GID is for the caller to choose.
func Settings() connect.Settings {
	s := connect.Defaults()
	s.MTU, s.MaxReads, s.Retries, s.RNRRetries, s.HopLimit, s.QKey = MTU, 1, 7, 7, 1, QKey
	return s
}
