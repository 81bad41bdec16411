package connect

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/unifiedd/unifiedd/rdma"
)

// The layout of an offer (numbers are big-endian):
//
//	offset  bytes
//	     0      1  transport: 2 RC, 3 UC, 4 UD, as enum ibv_qp_type has them
//	     1      1  MTU: 1 to 5, as enum ibv_mtu
//	     2      1  outstanding READs and atomics that the sender wants
//	     3      1  outstanding READs and atomics of the peer that it accepts
//	     4      2  LID
//	     6      2  0
//	     8      4  queue pair number
//	    12      4  packet sequence number
//	    16      4  Q_Key
//	    20     16  GID
//	    36      1  how many grants follow
//	            each: name's length (1), name, rights (4, as enum ibv_access_flags), rkey (4), address (8), length (8)
//	            2  the hello's length, then the hello, then nothing
const (
	parametersBytes = 36
	grantBytes      = 1 + 4 + 4 + 8 + 8 // without the name
	maxOffer        = parametersBytes + 1 + MaxGrants*(grantBytes+MaxGrantName) + 2 + MaxHello
)

// errShort means that a message is shorter than it says.
var errShort = errors.New("it ends too early")

// AppendOffer appends the encoded offer, which must have passed Check.
func AppendOffer(b []byte, o *Offer) []byte {
	p := &o.Parameters
	b = append(b, byte(p.Transport), byte(p.MTU), p.MaxReads, p.MaxRemoteReads)
	b = binary.BigEndian.AppendUint16(b, p.LID)
	b = binary.BigEndian.AppendUint16(b, 0)
	b = binary.BigEndian.AppendUint32(b, p.QPN)
	b = binary.BigEndian.AppendUint32(b, p.PSN)
	b = binary.BigEndian.AppendUint32(b, p.QKey)
	b = append(b, p.GID[:]...)
	b = append(b, byte(len(o.Grants)))
	for i := range o.Grants {
		b = appendGrant(b, &o.Grants[i])
	}
	b = binary.BigEndian.AppendUint16(b, uint16(len(o.Hello)))
	return append(b, o.Hello...)
}

func appendGrant(b []byte, g *Grant) []byte {
	b = append(b, byte(len(g.Name)))
	b = append(b, g.Name...)
	b = binary.BigEndian.AppendUint32(b, uint32(g.Access))
	b = binary.BigEndian.AppendUint32(b, g.RKey)
	b = binary.BigEndian.AppendUint64(b, g.Addr)
	return binary.BigEndian.AppendUint64(b, g.Length)
}

// DecodeOffer decodes an offer and checks it. The result does not refer to b.
func DecodeOffer(b []byte) (Offer, error) {
	var o Offer
	c := cursor{rest: b}
	c.parameters(&o.Parameters)
	n := int(c.u8())
	for i := 0; i < n && !c.short; i++ {
		o.Grants = append(o.Grants, c.grant())
	}
	o.Hello = append([]byte(nil), c.take(int(c.u16()))...)
	switch {
	case c.short:
		return Offer{}, errShort
	case c.reserved != 0:
		return Offer{}, fmt.Errorf("bytes 6 and 7 are 0x%x, not 0", c.reserved)
	case len(c.rest) > 0:
		return Offer{}, fmt.Errorf("%d bytes follow its end", len(c.rest))
	}
	if err := o.Check(); err != nil {
		return Offer{}, err
	}
	return o, nil
}

// cursor reads numbers from the front of a message; zeros if it is too short.
type cursor struct {
	rest     []byte
	short    bool
	reserved uint16
}

func (c *cursor) parameters(p *Parameters) {
	p.Transport, p.MTU = rdma.Transport(c.u8()), rdma.MTU(c.u8())
	p.MaxReads, p.MaxRemoteReads = c.u8(), c.u8()
	p.LID, c.reserved = c.u16(), c.u16()
	p.QPN, p.PSN, p.QKey = c.u32(), c.u32(), c.u32()
	copy(p.GID[:], c.take(len(p.GID)))
}

func (c *cursor) grant() Grant {
	g := Grant{Name: string(c.take(int(c.u8())))}
	g.Access, g.RKey, g.Addr, g.Length = rdma.Access(c.u32()), c.u32(), c.u64(), c.u64()
	return g
}

var zeros [8]byte

func (c *cursor) take(n int) []byte {
	if n > len(c.rest) {
		c.short, c.rest = true, nil
		return zeros[:min(n, len(zeros))]
	}
	b := c.rest[:n]
	c.rest = c.rest[n:]
	return b
}

func (c *cursor) u8() uint8   { return c.take(1)[0] }
func (c *cursor) u16() uint16 { return binary.BigEndian.Uint16(c.take(2)) }
func (c *cursor) u32() uint32 { return binary.BigEndian.Uint32(c.take(4)) }
func (c *cursor) u64() uint64 { return binary.BigEndian.Uint64(c.take(8)) }
