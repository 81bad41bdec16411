package protocol

// Grant is a progress message by which the receiver also gives memory: behind the header are credits,
// each for the next messages in turn. It has the fields of [Progress], and:
//
//	offset  bytes
//	     0      4  "uGRT"
//	     5      1  kind: 5
//	    44      4  how many credits follow: 1 to MaxCredits
//	    48      4  CRC-32C of the credits
//	    52      8  first: the sequence of the message that the first credit is for
//	    64     24  each credit
type Grant struct {
	Progress
	Credits, Checksum uint32
	First             uint64
}

// Credit is memory of the receiver's for Count messages, one after the other, Size bytes each. Nothing but those
// messages may be written there, each with the number of its slot as immediate.
//
//	offset  bytes
//	     0      8  address
//	     8      4  rkey
//	    12      4  slot of the first message; one more for each
//	    16      4  count: 1 or more
//	    20      4  size in bytes: what a message may have, and how far apart they begin
type Credit struct {
	Addr                    uint64
	RKey, Slot, Count, Size uint32
}

const (
	// CreditLen is the length of a credit, in bytes.
	CreditLen = 24
	// MaxCredits is the most credits of one message.
	MaxCredits = 8
	// MaxGrantLen is the longest message of this kind, and the room that a receive needs for it.
	MaxGrantLen = HeaderLen + MaxCredits*CreditLen
)

// PutGrant writes the header of a message into the first HeaderLen bytes of dst, which must be there. The credits behind it,
// of which Checksum is that of their bytes, are put before.
func PutGrant(dst []byte, g *Grant) {
	begin(dst, KindGrant)
	putProgress(dst, &g.Progress)
	be.PutUint32(dst[44:], g.Credits)
	be.PutUint32(dst[48:], g.Checksum)
	be.PutUint64(dst[52:], g.First)
	seal(dst)
}

// CreditsOf are the bytes of a message's credits, which has so many.
func CreditsOf(message []byte, credits uint32) []byte {
	return message[HeaderLen : HeaderLen+credits*CreditLen]
}

// PutCredit writes one into the first CreditLen bytes of dst, which must be there.
func PutCredit(dst []byte, c *Credit) {
	be.PutUint64(dst, c.Addr)
	be.PutUint32(dst[8:], c.RKey)
	be.PutUint32(dst[12:], c.Slot)
	be.PutUint32(dst[16:], c.Count)
	be.PutUint32(dst[20:], c.Size)
}

// ParseGrant reads a whole message, but for its credits. That the numbers fit what was sent is its caller's to check.
func ParseGrant(message []byte) (Grant, Reason) {
	if r := check(message, KindGrant, sumAt); r != None {
		return Grant{}, r
	}
	p, r := parseProgress(message)
	if r != None {
		return Grant{}, r
	}
	g := Grant{Progress: p, Credits: be.Uint32(message[44:]), Checksum: be.Uint32(message[48:]), First: be.Uint64(message[52:])}
	switch {
	case g.Credits == 0 || g.Credits > MaxCredits:
		return Grant{}, BadReserved
	case len(message) != HeaderLen+int(g.Credits)*CreditLen:
		return Grant{}, BadLength
	case g.First == 0:
		return Grant{}, BadSequence
	case Checksum(message[HeaderLen:]) != g.Checksum:
		return Grant{}, BadPayload
	}
	return g, None
}

// ParseCredit reads the first CreditLen bytes of b, which must be there.
func ParseCredit(b []byte) (Credit, Reason) {
	c := Credit{Addr: be.Uint64(b), RKey: be.Uint32(b[8:]), Slot: be.Uint32(b[12:]), Count: be.Uint32(b[16:]), Size: be.Uint32(b[20:])}
	switch all := uint64(c.Count) * uint64(c.Size); {
	case c.Count == 0 || c.Slot+c.Count < c.Slot:
		return Credit{}, BadReserved
	case c.Size < HeaderLen:
		return Credit{}, BadLength
	case c.Addr+all < c.Addr:
		return Credit{}, OutOfRange
	}
	return c, None
}
