package perftest

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// Lengths of a key on the wire, including the zero byte at its end. On Ethernet both sides have a
// GID.
const (
	keyBytes    = 59
	keyGIDBytes = 108
)

// Key describes a queue pair of one side.
type Key struct {
	LID uint16
	// Reads is how many READs and atomics of the peer may be outstanding. The peer uses that many.
	Reads uint16
	QPN   uint32
	PSN   uint32
	RKey  uint32
	Addr  uint64 // first address that the peer may access, for Session.Reach bytes
	GID   rdma.GID
	SRQN  uint32 // of a shared receive queue, for transports that this package does not support
}

// KeyOf returns the key of a queue pair of ours and of memory that the peer may access. Tests of
// SEND have no memory.
func KeyOf(p connect.Parameters, rkey uint32, addr uint64) Key {
	return Key{LID: p.LID, Reads: uint16(max(p.MaxRemoteReads, 1)), QPN: p.QPN, PSN: p.PSN, RKey: rkey, Addr: addr, GID: p.GID}
}

// Parameters returns the parameters of a peer. ours is our key; the peer uses its Reads.
func (k *Key) Parameters(t rdma.Transport, mtu rdma.MTU, ours Key) (connect.Parameters, error) {
	p := connect.Parameters{Transport: t, QPN: k.QPN, PSN: k.PSN, GID: k.GID, LID: k.LID, MTU: mtu,
		MaxReads: uint8(min(ours.Reads, 255)), MaxRemoteReads: uint8(min(k.Reads, 255))}
	if t == rdma.UD {
		p.QKey = QKey
	}
	return p, p.Check()
}

// Encode returns the text that the programs print and parse.
func (k *Key) Encode() []byte {
	b := fmt.Appendf(nil, "%04x:%04x:%06x:%06x:%08x:%016x:", k.LID, k.Reads, k.QPN, k.PSN, k.RKey, k.Addr)
	if k.GID.IsZero() {
		return fmt.Appendf(b, "%08x\x00", k.SRQN)
	}
	for _, digit := range k.GID {
		b = fmt.Appendf(b, "%02x:", digit)
	}
	return fmt.Appendf(b, "%08x:\x00", k.SRQN)
}

// DecodeKey reads exactly the output of Encode, and refuses all other input.
func DecodeKey(b []byte) (Key, error) {
	var k Key
	if len(b) == keyBytes || len(b) == keyGIDBytes {
		k.LID, k.Reads = uint16(number(b[0:4])), uint16(number(b[5:9]))
		k.QPN, k.PSN = uint32(number(b[10:16])), uint32(number(b[17:23]))
		k.RKey, k.Addr = uint32(number(b[24:32])), number(b[33:49])
		k.SRQN = uint32(number(b[50:58]))
	}
	if len(b) == keyGIDBytes {
		for i := range k.GID {
			k.GID[i] = uint8(number(b[50+3*i : 52+3*i]))
		}
		k.SRQN = uint32(number(b[98:106]))
	}
	if !bytes.Equal(k.Encode(), b) {
		return Key{}, fmt.Errorf("%q is not a key of perftest's (do both sides send from a GID? options -x and -d choose one)", b)
	}
	return k, nil
}

// number parses hexadecimal digits. For other input it returns a number whose digits differ from
// the input.
func number(b []byte) uint64 {
	n, _ := strconv.ParseUint(string(b), 16, 64)
	return n
}

// sameFamily refuses an IPv4 GID on one side and an IPv6 one on the other, as the programs do.
func sameFamily(a, b Key) error {
	if a.GID.Is4() != b.GID.Is4() {
		return errors.New("one side has an IPv4 GID and the other has none: choose the same kind (option -x of perftest)")
	}
	return nil
}
