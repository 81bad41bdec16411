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

// slot is a supplied frame that a message of the peer's may land in.
type slot struct {
	addr   uint64 // where it lands
	length uint32
	used   bool
	told   bool // the peer has a credit for it
}

// slots are those of a port, by number.
type slots struct {
	list []slot
	free []uint32
	// untold are the numbers of those the peer is to be told of, in a ring.
	untold     []uint32
	head, tail uint32
}

func newSlots(n int) slots {
	s := slots{list: make([]slot, n), untold: make([]uint32, pow2(n))}
	for i := n - 1; i >= 0; i-- {
		s.free = append(s.free, uint32(i))
	}
	return s
}

// take makes a slot of a frame. There is one free.
func (s *slots) take(addr uint64, length uint32) {
	n := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	s.list[n] = slot{addr: addr, length: length, used: true}
	s.untold[s.tail&uint32(len(s.untold)-1)] = n
	s.tail++
}

func (s *slots) give(n uint32) {
	s.list[n] = slot{}
	s.free = append(s.free, n)
}

// next is the slot to tell of next, if there is one.
func (s *slots) next() (uint32, bool) {
	return s.untold[s.head&uint32(len(s.untold)-1)], s.head != s.tail
}

// told notes that the next is told of.
func (s *slots) told() {
	n, _ := s.next()
	s.list[n].told = true
	s.head++
}

// credits are those of the peer's, in the order they came in.
type credits struct {
	list       []credit // a ring
	have       []bool   // by slot
	head, tail uint32
}

func newCredits(n int) credits { return credits{list: make([]credit, pow2(n)), have: make([]bool, n)} }

func (c *credits) len() int { return int(c.tail - c.head) }

func (c *credits) push(one credit) {
	c.have[one.slot] = true
	c.list[c.tail&uint32(len(c.list)-1)] = one
	c.tail++
}

func (c *credits) pop() credit {
	one := c.list[c.head&uint32(len(c.list)-1)]
	c.head++
	c.have[one.slot] = false
	return one
}
