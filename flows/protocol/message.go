package protocol

import (
	"encoding/binary"
	"hash/crc32"
)

// Version is the version of the messages and the hello. Both sides must have the same.
const Version = 1

// HeaderLen is the length in bytes of every message, without the payload of a data message and the
// credits of a grant.
const HeaderLen = 64

// Kind is the kind of a message.
type Kind uint8

const (
	KindData     Kind = 1
	KindProgress Kind = 2
	KindRequest  Kind = 3
	KindResponse Kind = 4
	KindGrant    Kind = 5
	KindCommit   Kind = 6
	KindHave     Kind = 7
)

// The offsets of the fields that all messages have.
const (
	versionAt = 4  // 1 byte
	kindAt    = 5  // 1 byte
	lengthAt  = 6  // 2 bytes: HeaderLen
	sumAt     = 60 // 4 bytes: CRC-32C of the bytes before
)

var magics = [...]uint32{KindData: magic("uMSG"), KindProgress: magic("uACK"), KindRequest: magic("uREQ"), KindResponse: magic("uRSP"), KindGrant: magic("uGRT"),
	KindCommit: magic("uCMT"), KindHave: magic("uHAV")}

func magic(s string) uint32 { return binary.BigEndian.Uint32([]byte(s)) }

var (
	be         = binary.BigEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// begin clears a header and writes the common fields.
func begin(dst []byte, k Kind) {
	clear(dst[:HeaderLen])
	be.PutUint32(dst, magics[k])
	dst[versionAt], dst[kindAt] = Version, byte(k)
	be.PutUint16(dst[lengthAt:], HeaderLen)
}

// seal writes a header's checksum.
func seal(header []byte) {
	be.PutUint32(header[sumAt:], crc32.Checksum(header[:sumAt], castagnoli))
}

// check returns what is wrong with the header of a message of any kind. free is the offset at which
// reserved bytes begin; they must be 0 up to the checksum.
func check(message []byte, k Kind, free int) Reason {
	switch {
	case len(message) < HeaderLen:
		return BadLength
	case be.Uint32(message) != magics[k]:
		return BadMagic
	case message[versionAt] != Version:
		return BadVersion
	case Kind(message[kindAt]) != k:
		return BadKind
	case be.Uint16(message[lengthAt:]) != HeaderLen:
		return BadLength
	case be.Uint32(message[sumAt:]) != crc32.Checksum(message[:sumAt], castagnoli):
		return BadHeader
	}
	return zeros(message[free:sumAt])
}

// zeros refuses bytes that are not 0.
func zeros(b []byte) Reason {
	for _, v := range b {
		if v != 0 {
			return BadReserved
		}
	}
	return None
}

// KindOf returns the kind in the first bytes of a message, which may still be malformed. It is for
// peers that receive several kinds.
func KindOf(message []byte) (Kind, Reason) {
	if len(message) < HeaderLen {
		return 0, BadLength
	}
	m := be.Uint32(message)
	for k := KindData; k <= KindHave; k++ {
		if magics[k] == m {
			return k, None
		}
	}
	return 0, BadMagic
}

// Progress is a receiver's report about a session:
//
//	offset  bytes
//	     0      4  "uACK"
//	     4      1  version
//	     5      1  kind: 2
//	     6      2  length of the header: 64
//	     8      8  sequence up to which, with it, messages are acknowledged; 0 none
//	    16      8  position of that message in the log, 0 where there is none
//	    24      8  limit: the highest sequence that the sender may send
//	    32      8  session
//	    40      4  status: a Reason; when it is not 0 the receiver ends the session's queue pair
//	    44     16  0
//	    60      4  CRC-32C of bytes 0 to 59
type Progress struct {
	Sequence, Position, Limit, Session uint64
	Status                             Reason
}

const progressFree = 44

// PutProgress writes a message into the first HeaderLen bytes of dst. dst must be long enough.
func PutProgress(dst []byte, p *Progress) {
	begin(dst, KindProgress)
	putProgress(dst, p)
	seal(dst)
}

// putProgress writes the common fields of progress and grants.
func putProgress(dst []byte, p *Progress) {
	be.PutUint64(dst[8:], p.Sequence)
	be.PutUint64(dst[16:], p.Position)
	be.PutUint64(dst[24:], p.Limit)
	be.PutUint64(dst[32:], p.Session)
	be.PutUint32(dst[40:], uint32(p.Status))
}

// ParseProgress parses a whole message. The caller must check that the numbers match the messages
// that it sent.
func ParseProgress(message []byte) (Progress, Reason) {
	if r := alone(message, KindProgress, progressFree); r != None {
		return Progress{}, r
	}
	return parseProgress(message)
}

// parseProgress reads the common fields of progress and grants.
func parseProgress(message []byte) (Progress, Reason) {
	p := Progress{Sequence: be.Uint64(message[8:]), Position: be.Uint64(message[16:]), Limit: be.Uint64(message[24:]), Session: be.Uint64(message[32:])}
	var r Reason
	if p.Status, r = status(be.Uint32(message[40:])); r != None {
		return Progress{}, r
	}
	if p.Session == 0 {
		return Progress{}, BadSession
	}
	return p, None
}

// alone checks a message that consists of a header only.
func alone(message []byte, k Kind, free int) Reason {
	if len(message) != HeaderLen {
		return BadLength
	}
	return check(message, k, free)
}

// status parses a Reason. An unknown one-byte number is from a later version; status keeps it.
func status(v uint32) (Reason, Reason) {
	if v > 0xff {
		return None, BadReserved
	}
	return Reason(v), None
}

// Grant is a progress message that also grants memory: credits follow the header, each for the
// next messages in order. It has the fields of [Progress], and:
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

// Credit is memory of the receiver for Count messages, one after the other, Size bytes each. The
// sender may write only those messages there, each with the number of its slot as immediate.
//
//	offset  bytes
//	     0      8  address
//	     8      4  rkey
//	    12      4  slot of the first message; one more for each
//	    16      4  count: 1 or more
//	    20      4  size in bytes: the longest message, and the distance between the slots
type Credit struct {
	Addr                    uint64
	RKey, Slot, Count, Size uint32
}

const (
	// CreditLen is the length of a credit, in bytes.
	CreditLen = 24
	// MaxCredits is the maximum number of credits in one message.
	MaxCredits = 8
	// MaxGrantLen is the longest message of this kind, and the room that a receive needs for it.
	MaxGrantLen = HeaderLen + MaxCredits*CreditLen
)

// PutGrant writes the header of a message into the first HeaderLen bytes of dst. The caller must
// have written the credits after it, whose checksum is Checksum.
func PutGrant(dst []byte, g *Grant) {
	begin(dst, KindGrant)
	putProgress(dst, &g.Progress)
	be.PutUint32(dst[44:], g.Credits)
	be.PutUint32(dst[48:], g.Checksum)
	be.PutUint64(dst[52:], g.First)
	seal(dst)
}

// CreditsOf returns the bytes of a message's credits; credits is their number.
func CreditsOf(message []byte, credits uint32) []byte {
	return message[HeaderLen : HeaderLen+credits*CreditLen]
}

// PutCredit writes a credit into the first CreditLen bytes of dst. dst must be long enough.
func PutCredit(dst []byte, c *Credit) {
	be.PutUint64(dst, c.Addr)
	be.PutUint32(dst[8:], c.RKey)
	be.PutUint32(dst[12:], c.Slot)
	be.PutUint32(dst[16:], c.Count)
	be.PutUint32(dst[20:], c.Size)
}

// ParseGrant parses a whole message, but not its credits. The caller must check that the numbers
// match the messages that it sent.
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

// ParseCredit parses the first CreditLen bytes of b. b must be long enough.
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
