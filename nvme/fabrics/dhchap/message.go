package dhchap

import "encoding/binary"

var le = binary.LittleEndian

// Longest is more than the length of any message of a session, in bytes. Hosts ask for 4096.
const Longest = 4096

// Types of messages.
const (
	common = 0x00
	dhchap = 0x01
)

// Messages of these types.
const (
	negotiate = 0x00
	challenge = 0x01
	reply     = 0x02
	success1  = 0x03
	success2  = 0x04
	failure2  = 0xf0
	failure1  = 0xf1
)

// The beginning of all messages, and offsets in them.
const (
	headerLen = 6 // type, message, two reserved bytes, transaction

	negotiateLen  = 8 // without descriptors
	descriptorLen = 64
	offDescriptor = 8
	protocolID    = 1 // DH-HMAC-CHAP
	mostIDs       = 30
	offHashIDs    = 4
	offGroupIDs   = 34

	bodyLen     = 16 // of a challenge, a reply and a success, before the values
	failureLen  = 8
	reasonFails = 1 // the reason code of a failure; the explanation has the cause
)

// Reason is why a session failed: the explanation codes. It is an error.
type Reason uint8

// Reasons.
const (
	Failed           Reason = 1
	NotUsable        Reason = 2
	ConcatMismatch   Reason = 3
	HashUnusable     Reason = 4
	GroupUnusable    Reason = 5
	IncorrectPayload Reason = 6
	IncorrectMessage Reason = 7
)

var reasons = [...]string{"", "authentication failed", "the protocol is not usable", "it asks for a secure channel, which is not to be had", "no hash function that both have",
	"not the group that is configured", "a message that is wrong in itself", "a message out of turn"}

// Error returns the meaning of the reason.
func (r Reason) Error() string {
	if int(r) < len(reasons) {
		return reasons[r]
	}
	return "a reason that is not known"
}

// message returns a message of n bytes with its header.
func (s *Session) message(kind, id uint8, n int) []byte {
	b := make([]byte, n)
	b[0], b[1] = kind, id
	le.PutUint16(b[4:], s.transaction)
	return b
}
