package feed

import "encoding/binary"

// Sizes of MoldUDP64 in bytes.
const (
	sessionLen = 10
	headerLen  = sessionLen + 8 + 2
	lengthLen  = 2 // of a message, in front of it

	// RequestLen is the length of a request for retransmission.
	RequestLen = headerLen

	endOfSession = 0xffff // message count
)

// Session is the name of a session: ten characters.
type Session [sessionLen]byte

// Packet is a packet that Parse has checked.
type Packet struct {
	Session  Session
	Sequence uint64 // of the first message; of a heartbeat, and at the end of a session, of the next one
	Count    uint64 // messages; 0: a heartbeat, or the end of the session
	End      bool   // the session has ended

	blocks []byte // messages behind their lengths
	whole  bool   // blocks is one message without a length
}

// Reason is why a packet gave no message.
type Reason uint8

// The reasons.
const (
	Good       Reason = iota
	Short             // it ends within its header, or its number
	Overrun           // a message, or the count of them, goes beyond its end
	Trailing          // bytes follow the last message
	Wraps             // its sequence numbers go beyond 64 bits
	OldSession        // it is of the session before
	TooFar            // it is so far ahead that its number cannot be right
	TooLong           // it is longer than a packet of the network can be
	NoRoom            // it is behind a gap, and as many packets as possible are held already

	reasons
)

var names = [reasons]string{
	"good", "short", "overrun", "trailing", "wraps", "old_session", "too_far", "too_long", "no_room",
}

// String is the reason as a metric's label has it.
func (r Reason) String() string {
	if r < reasons {
		return names[r]
	}
	return "unknown"
}

// Parse checks the payload of a UDP packet. The packet refers to it.
func Parse(p []byte) (Packet, Reason) {
	if len(p) < headerLen {
		return Packet{}, Short
	}
	count := binary.BigEndian.Uint16(p[headerLen-2:])
	m := Packet{
		Session: Session(p[:sessionLen]), Sequence: binary.BigEndian.Uint64(p[sessionLen:]),
		Count: uint64(count), End: count == endOfSession, blocks: p[headerLen:],
	}
	if m.End {
		m.Count = 0
	}
	if m.Sequence+m.Count < m.Sequence {
		return Packet{}, Wraps
	}
	rest := m.blocks
	for range m.Count {
		if len(rest) < lengthLen {
			return Packet{}, Overrun
		}
		n := lengthLen + int(binary.BigEndian.Uint16(rest))
		if n > len(rest) {
			return Packet{}, Overrun
		}
		rest = rest[n:]
	}
	if len(rest) > 0 {
		return Packet{}, Trailing
	}
	return m, Good
}

// take removes the first message. The packet must have one.
func (p *Packet) take() (message []byte) {
	if p.whole {
		message, p.blocks = p.blocks, nil
		p.Sequence++
		p.Count--
		return message
	}
	n := lengthLen + int(binary.BigEndian.Uint16(p.blocks))
	message, p.blocks = p.blocks[lengthLen:n:n], p.blocks[n:]
	p.Sequence++
	p.Count--
	return message
}

// PutRequest writes a request for the retransmission of messages.
func PutRequest(b *[RequestLen]byte, s Session, sequence uint64, count uint16) {
	copy(b[:], s[:])
	binary.BigEndian.PutUint64(b[sessionLen:], sequence)
	binary.BigEndian.PutUint16(b[headerLen-2:], count)
}
