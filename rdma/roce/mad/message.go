package mad

import (
	"encoding/binary"

	"github.com/unifiedd/unifiedd/rdma"
)

// Message is one message of any kind. Fields that its kind does not have are zero, or ignored.
type Message struct {
	Kind        Kind
	Transaction uint64
	Local       uint32 // identifier of the sender; in SIDR messages, of the request
	Remote      uint32 // identifier of the receiver; a REQ and SIDR messages have none
	Request     Request
	Reply       Reply
	About       About    // MRA, REJ
	Timeout     uint8    // MRA: the longest time for the answer, 4.096 µs << this
	Reason      uint16   // REJ
	Info        [72]byte // REJ: more about the reason
	InfoBytes   uint8    // at most 72
	RemoteQPN   uint32   // DREQ: the receiver's queue pair
	Status      uint8    // SIDR_REP
	ServiceID   uint64   // SIDR messages
	// Private is the private data. After Decode it has all that the kind has, within the
	// decoded bytes. For Encode it may be shorter.
	Private []byte
}

// About is the kind of message that another one answers.
type About uint8

const (
	AboutREQ   About = 0
	AboutREP   About = 1
	AboutOther About = 2
)

// Request has the fields of a REQ.
type Request struct {
	ServiceID      uint64
	GUID           uint64 // of the sender's card
	QPN            uint32
	PSN            uint32 // the first PSN that the receiver sends
	QKey           uint32
	Responder      uint8  // responder resources: how many of the peer's READs and atomics the sender accepts
	Initiator      uint8  // initiator depth: how many READs and atomics the sender may have outstanding
	RemoteResponse uint8  // the longest time for the receiver to answer, 4.096 µs << this
	LocalResponse  uint8  // the longest time for the sender to answer, likewise
	Transport      uint8  // 0: RC, 1: UC
	FlowControl    bool   // end to end
	Retries        uint8  // for packets of the connection
	RNRRetries     uint8  // likewise
	PKey           uint16 // partition
	MTU            rdma.MTU
	CMRetries      uint8 // for messages like this one
	Shared         bool  // a shared receive queue
	Extended       uint8 // extended transport type, of XRC
	Primary        Path
	Alternate      bool // there is an alternate path
}

// Path is the way between the two ports, as the sender of a REQ sees it.
type Path struct {
	LocalLID, RemoteLID uint16
	Local, Remote       rdma.GID
	FlowLabel           uint32 // 20 bits
	Rate                uint8  // static rate, 6 bits
	TrafficClass        uint8
	HopLimit            uint8
	SL                  uint8 // service level, 4 bits
	SubnetLocal         bool
	AckTimeout          uint8 // for acknowledgements from the sender, 4.096 µs << this
}

// Reply has the fields of a REP.
type Reply struct {
	QKey        uint32
	QPN         uint32
	PSN         uint32
	Responder   uint8 // as in a Request
	Initiator   uint8
	AckDelay    uint8 // of the sender's card, 4.096 µs << this
	Failover    uint8 // whether the sender accepts the alternate path
	FlowControl bool
	RNRRetries  uint8 // for packets from the receiver
	Shared      bool
	GUID        uint64
}

const mask24 = 1<<24 - 1

// Size is the length of a MAD in bytes, the same for every message.
const Size = 256

// QueuePair is the number of the queue pair from and to which connection managers send MADs, and
// QKey its Q_Key.
const (
	QueuePair = 1
	QKey      = 0x80010000
)

// The constant fields in the header of a connection manager's MAD.
const (
	headerBytes  = 24
	baseVersion  = 1
	class        = 7 // communication management
	classVersion = 2
	methodSend   = 3
)

var be = binary.BigEndian

// Kind is the kind of a message: its attribute identifier.
type Kind uint16

const (
	REQ     Kind = 0x10 // requests a connection
	MRA     Kind = 0x11 // the message arrived, and the answer takes a while
	REJ     Kind = 0x12 // refuses
	REP     Kind = 0x13 // the answer to a REQ
	RTU     Kind = 0x14 // the answer to a REP: ready to use
	DREQ    Kind = 0x15 // requests the end of the connection
	DREP    Kind = 0x16 // the answer to a DREQ
	SIDRREQ Kind = 0x17 // requests the queue pair of a datagram service
	SIDRREP Kind = 0x18 // the answer to a SIDR_REQ
)

var kindNames = [...]string{"req", "mra", "rej", "rep", "rtu", "dreq", "drep", "sidr_req", "sidr_rep"}

// Kinds is the number of kinds; Index counts them from 0.
const Kinds = len(kindNames)

// Index returns a dense number, less than Kinds for a kind that Decode accepts.
func (k Kind) Index() int { return int(k) - int(REQ) }

// String returns a name that a metric can use.
func (k Kind) String() string {
	if i := k.Index(); i >= 0 && i < Kinds {
		return kindNames[i]
	}
	return "other"
}

// privates has the offset of private data in the message of each kind. Private data extends to the
// end, padded with zeros.
var privates = [Kinds]int{140, 10, 84, 36, 8, 12, 8, 16, 96}

// Malformed is the reason why a MAD is invalid.
type Malformed uint8

const (
	WellFormed Malformed = iota
	Length               // the length is not Size
	Version              // of the base, or of the class
	Class                // a class other than that of connection managers
	Method               // a method other than Send
	Attribute            // an unknown kind of message
	// Reasons is the number of reasons, including WellFormed.
	Reasons
)

var malformedNames = [Reasons]string{"well_formed", "length", "version", "class", "method", "attribute"}

func (m Malformed) String() string { return malformedNames[m] }

// Encode writes a message. It cuts off the upper bits of fields that are too large, and the end of
// private data that is longer than the kind's.
func (m *Message) Encode(to *[Size]byte) {
	clear(to[:])
	to[0], to[1], to[2], to[3] = baseVersion, class, classVersion, methodSend
	be.PutUint64(to[8:], m.Transaction)
	be.PutUint16(to[16:], uint16(m.Kind))
	b := to[headerBytes:]
	be.PutUint32(b, m.Local)
	be.PutUint32(b[4:], m.Remote)
	switch m.Kind {
	case REQ:
		be.PutUint32(b[4:], 0)
		m.Request.encode(b)
	case REP:
		m.Reply.encode(b)
	case MRA:
		b[8], b[9] = byte(m.About)<<6, m.Timeout<<3
	case REJ:
		b[8], b[9] = byte(m.About)<<6, m.InfoBytes<<1
		be.PutUint16(b[10:], m.Reason)
		copy(b[12:84], m.Info[:])
	case DREQ:
		be.PutUint32(b[8:], m.RemoteQPN<<8)
	case SIDRREQ:
		be.PutUint32(b[4:], 0)
		be.PutUint64(b[8:], m.ServiceID)
	case SIDRREP:
		be.PutUint32(b[4:], uint32(m.Status)<<24)
		be.PutUint64(b[12:], m.ServiceID)
	}
	copy(b[privates[m.Kind.Index()]:], m.Private)
}

func bit(b bool, place int) byte {
	if b {
		return 1 << place
	}
	return 0
}

func (r *Request) encode(b []byte) {
	be.PutUint64(b[8:], r.ServiceID)
	be.PutUint64(b[16:], r.GUID)
	be.PutUint32(b[28:], r.QKey)
	be.PutUint32(b[32:], r.QPN<<8|uint32(r.Responder))
	b[39] = r.Initiator
	b[43] = r.RemoteResponse<<3 | low(r.Transport, 2)<<1 | bit(r.FlowControl, 0)
	be.PutUint32(b[44:], r.PSN<<8|uint32(r.LocalResponse<<3|low(r.Retries, 3)))
	be.PutUint16(b[48:], r.PKey)
	b[50] = byte(r.MTU)<<4 | low(r.RNRRetries, 3)
	b[51] = r.CMRetries<<4 | bit(r.Shared, 3) | low(r.Extended, 3)
	p := &r.Primary
	be.PutUint16(b[52:], p.LocalLID)
	be.PutUint16(b[54:], p.RemoteLID)
	copy(b[56:], p.Local[:])
	copy(b[72:], p.Remote[:])
	be.PutUint32(b[88:], p.FlowLabel<<12|uint32(low(p.Rate, 6)))
	b[92], b[93], b[94], b[95] = p.TrafficClass, p.HopLimit, p.SL<<4|bit(p.SubnetLocal, 3), p.AckTimeout<<3
}

func (r *Reply) encode(b []byte) {
	be.PutUint32(b[8:], r.QKey)
	be.PutUint32(b[12:], r.QPN<<8)
	be.PutUint32(b[20:], r.PSN<<8)
	b[24], b[25] = r.Responder, r.Initiator
	b[26] = r.AckDelay<<3 | low(r.Failover, 2)<<1 | bit(r.FlowControl, 0)
	b[27] = r.RNRRetries<<5 | bit(r.Shared, 4)
	be.PutUint64(b[28:], r.GUID)
}

// Decode reads a MAD. Private is then a part of b. The message is valid only if the result is
// WellFormed.
func (m *Message) Decode(b []byte) Malformed {
	if why := check(b); why != WellFormed {
		return why
	}
	*m = Message{Kind: Kind(be.Uint16(b[16:])), Transaction: be.Uint64(b[8:])}
	b = b[headerBytes:]
	m.Private = b[privates[m.Kind.Index()]:]
	m.Local, m.Remote = be.Uint32(b), be.Uint32(b[4:])
	switch m.Kind {
	case REQ:
		m.Remote = 0
		m.Request.decode(b)
	case REP:
		m.Reply.decode(b)
	case MRA:
		m.About, m.Timeout = About(b[8]>>6), b[9]>>3
	case REJ:
		m.About, m.InfoBytes, m.Reason = About(b[8]>>6), min(b[9]>>1, uint8(len(m.Info))), be.Uint16(b[10:])
		copy(m.Info[:m.InfoBytes], b[12:])
	case DREQ:
		m.RemoteQPN = be.Uint32(b[8:]) >> 8
	case SIDRREQ:
		m.Remote, m.ServiceID = 0, be.Uint64(b[8:])
	case SIDRREP:
		m.Remote, m.Status, m.ServiceID = 0, b[4], be.Uint64(b[12:])
	}
	return WellFormed
}

func check(b []byte) Malformed {
	switch {
	case len(b) != Size:
		return Length
	case b[0] != baseVersion:
		return Version
	case b[1] != class:
		return Class
	case b[2] != classVersion:
		return Version
	case b[3] != methodSend:
		return Method
	}
	if i := Kind(be.Uint16(b[16:])).Index(); i < 0 || i >= Kinds {
		return Attribute
	}
	return WellFormed
}

// low returns that many lower bits of a byte.
func low(b byte, bits int) byte { return b & (1<<bits - 1) }

func (r *Request) decode(b []byte) {
	r.ServiceID, r.GUID, r.QKey = be.Uint64(b[8:]), be.Uint64(b[16:]), be.Uint32(b[28:])
	r.QPN, r.Responder = be.Uint32(b[32:])>>8, b[35]
	r.Initiator = b[39]
	r.RemoteResponse, r.Transport, r.FlowControl = b[43]>>3, low(b[43]>>1, 2), low(b[43], 1) != 0
	r.PSN, r.LocalResponse, r.Retries = be.Uint32(b[44:])>>8, b[47]>>3, low(b[47], 3)
	r.PKey, r.MTU, r.RNRRetries = be.Uint16(b[48:]), rdma.MTU(b[50]>>4), low(b[50], 3)
	r.CMRetries, r.Shared, r.Extended = b[51]>>4, b[51]&8 != 0, low(b[51], 3)
	p := &r.Primary
	p.LocalLID, p.RemoteLID, p.Local, p.Remote = be.Uint16(b[52:]), be.Uint16(b[54:]), rdma.GID(b[56:72]), rdma.GID(b[72:88])
	p.FlowLabel, p.Rate = be.Uint32(b[88:])>>12, low(b[91], 6)
	p.TrafficClass, p.HopLimit, p.SL, p.SubnetLocal, p.AckTimeout = b[92], b[93], b[94]>>4, b[94]&8 != 0, b[95]>>3
	r.Alternate = be.Uint16(b[96:]) != 0 || rdma.GID(b[100:116]) != rdma.GID{}
}

func (r *Reply) decode(b []byte) {
	r.QKey, r.QPN, r.PSN, r.Responder, r.Initiator = be.Uint32(b[8:]), be.Uint32(b[12:])>>8, be.Uint32(b[20:])>>8, b[24], b[25]
	r.AckDelay, r.Failover, r.FlowControl = b[26]>>3, low(b[26]>>1, 2), low(b[26], 1) != 0
	r.RNRRetries, r.Shared, r.GUID = b[27]>>5, b[27]&16 != 0, be.Uint64(b[28:])
}
