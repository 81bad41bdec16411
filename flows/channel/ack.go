package channel

import (
	"encoding/binary"
	"fmt"

	"github.com/unifiedd/unifiedd/flows/protocol"
)

// ack is what a receiver tells the sender, as a SEND:
//
//	 0      4  "uCAK"
//	 4      4  0
//	 8      8  acknowledged: sequence
//	16      8  taken: WRITEs with immediate that the receiver has seen on this connection
type ack struct{ acknowledged, taken uint64 }

const (
	ackMagic = "uCAK"
	ackLen   = 24
)

var be = binary.BigEndian

// put writes an ack into ackLen bytes.
func (a ack) put(b []byte) {
	copy(b, ackMagic)
	be.PutUint32(b[4:], 0)
	be.PutUint64(b[8:], a.acknowledged)
	be.PutUint64(b[16:], a.taken)
}

// parseAck reads a peer's ack.
func parseAck(b []byte) (ack, error) {
	if len(b) != ackLen || string(b[:4]) != ackMagic || be.Uint32(b[4:]) != 0 {
		return ack{}, fmt.Errorf("read an acknowledgement: %w", protocol.BadMagic)
	}
	return ack{be.Uint64(b[8:]), be.Uint64(b[16:])}, nil
}

// following returns the sequence after last of which an immediate has the lower half.
func following(last uint64, immediate uint32) uint64 { return last + uint64(immediate-uint32(last)) }
