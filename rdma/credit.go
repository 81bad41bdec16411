package rdma

import (
	"encoding/binary"
	"fmt"
)

// A credit tells the peer of one slot that it may write a message into. Credits travel in a
// SEND, in network byte order: 'U', 'C', the version, how many credits, four bytes of zero;
// then for each credit slot (4 bytes), rkey (4), address (8), length (4), four bytes of zero.
type credit struct {
	slot, rkey uint32
	addr       uint64
	length     uint32
}

const (
	creditVersion = 1
	creditHeader  = 8
	creditBytes   = 24
	// creditsMost is how many credits one SEND has at most.
	creditsMost = (controlBytes - creditHeader) / creditBytes
	// controlBytes is the room for one SEND.
	controlBytes = 512
)

// writeCreditHeader returns how long a SEND of that many credits is.
func writeCreditHeader(b []byte, n int) uint32 {
	copy(b, []byte{'U', 'C', creditVersion, byte(n), 0, 0, 0, 0})
	return uint32(creditHeader + n*creditBytes)
}

// writeCredit writes credit number n of a SEND.
func writeCredit(b []byte, n int, c credit) {
	b = b[creditHeader+n*creditBytes:][:creditBytes]
	binary.BigEndian.PutUint32(b, c.slot)
	binary.BigEndian.PutUint32(b[4:], c.rkey)
	binary.BigEndian.PutUint64(b[8:], c.addr)
	binary.BigEndian.PutUint32(b[16:], c.length)
	binary.BigEndian.PutUint32(b[20:], 0)
}

// readCreditHeader returns how many credits a SEND of the peer's has.
func readCreditHeader(b []byte) (int, error) {
	switch {
	case len(b) < creditHeader || b[0] != 'U' || b[1] != 'C' || [4]byte(b[4:8]) != [4]byte{}:
		return 0, fmt.Errorf("%d bytes that are no credits", len(b))
	case b[2] != creditVersion:
		return 0, fmt.Errorf("credits of version %d: this is version %d", b[2], creditVersion)
	case b[3] == 0 || len(b) != creditHeader+int(b[3])*creditBytes:
		return 0, fmt.Errorf("%d bytes that should be %d credits", len(b), b[3])
	}
	return int(b[3]), nil
}

// readCredit reads credit number n of a SEND.
func readCredit(b []byte, n int) (credit, error) {
	b = b[creditHeader+n*creditBytes:][:creditBytes]
	c := credit{slot: binary.BigEndian.Uint32(b), rkey: binary.BigEndian.Uint32(b[4:]), addr: binary.BigEndian.Uint64(b[8:]),
		length: binary.BigEndian.Uint32(b[16:])}
	if binary.BigEndian.Uint32(b[20:]) != 0 || c.addr+uint64(c.length) < c.addr {
		return c, fmt.Errorf("a credit for %d bytes at %#x, which is none", c.length, c.addr)
	}
	return c, nil
}
