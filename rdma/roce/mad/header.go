package mad

import "encoding/binary"

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
// end.
var privates = [Kinds]int{140, 10, 84, 36, 8, 12, 8, 16, 96}

// MostPrivate returns how many bytes of private data a message of the kind has. They are always
// present, padded with zeros.
func (k Kind) MostPrivate() int { return Size - headerBytes - privates[k.Index()] }

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
