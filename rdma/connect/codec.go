package connect

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"regexp"

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

// Version is the version of the protocol. Both sides must have the same.
const Version = 1

// magic begins every message.
const magic = "uRDM"

// headerBytes is the length of the magic, the version, the kind and the length of the body. They stay
// the same in every version, so that each version can refuse the others with a message.
const headerBytes = 8

// kind is the kind of a message.
type kind uint8

const (
	kindOffer  kind = 1 // the client's
	kindAnswer kind = 2 // the server's offer
	kindReady  kind = 3 // the client can receive
	kindRefuse kind = 4 // the sender refuses, with a text
	kindText   kind = 5 // of the program
	kindBye    kind = 6 // the sender closes the connection in good order
)

// maxRefuse bounds the text of a refusal in bytes.
const maxRefuse = 200

// limits is the longest body of each kind in bytes.
var limits = map[kind]int{kindOffer: maxOffer, kindAnswer: maxOffer, kindReady: 0, kindRefuse: maxRefuse, kindText: MaxHello, kindBye: 0}

// MaxMessage is the longest body of a message in bytes.
const MaxMessage = maxOffer

func (k kind) String() string {
	names := map[kind]string{kindOffer: "offer", kindAnswer: "answer", kindReady: "ready", kindRefuse: "refusal", kindText: "text", kindBye: "bye"}
	if s, ok := names[k]; ok {
		return s
	}
	return fmt.Sprintf("message of kind %d", uint8(k))
}

// writeMessage sends one message in one write.
func writeMessage(w io.Writer, k kind, body []byte) error {
	b := make([]byte, 0, headerBytes+len(body))
	b = append(b, magic...)
	b = append(b, Version, byte(k))
	b = binary.BigEndian.AppendUint16(b, uint16(len(body)))
	_, err := w.Write(append(b, body...))
	return err
}

// readMessage receives one message, no longer than its kind may be. Its errors have a reason, see
// reasonOf.
func readMessage(r io.Reader) (kind, []byte, error) {
	var h [headerBytes]byte
	if n, err := io.ReadFull(r, h[:]); err != nil {
		if n > 0 && !bytes.HasPrefix([]byte(magic), h[:min(n, len(magic))]) {
			return 0, nil, stranger(h[:n])
		}
		return 0, nil, err
	}
	if string(h[:len(magic)]) != magic {
		return 0, nil, stranger(h[:])
	}
	if v := h[4]; v != Version {
		return 0, nil, &versionError{v}
	}
	k, n := kind(h[5]), int(binary.BigEndian.Uint16(h[6:]))
	most, ok := limits[k]
	if !ok {
		return 0, nil, malformed("%v: there is no such kind", k)
	}
	if n > most {
		return 0, nil, malformed("%v of %d bytes is longer than %d", k, n, most)
	}
	body := make([]byte, n)
	_, err := io.ReadFull(r, body)
	return k, body, err
}

// perftestVersion matches the first message of perftest's programs.
var perftestVersion = regexp.MustCompile(`^[0-9]+\.[0-9]+\x00`)

// stranger returns an error that says which protocol a peer seems to use.
func stranger(begin []byte) error {
	switch {
	case begin[0] == 0x16:
		return malformed("the peer begins with a TLS handshake, and here no certificates are configured")
	case begin[0] == 0x15:
		return malformed("the peer answers with a TLS alert: it wants TLS, and here no certificates are configured")
	case bytes.HasPrefix(begin, []byte("0000:")):
		return malformed("the peer seems to be an ibv_*_pingpong, which has another format")
	case perftestVersion.Match(begin):
		return malformed("the peer seems to be a perftest program, which has another format")
	}
	return malformed("the peer begins with %q, which is not this exchange", begin)
}
