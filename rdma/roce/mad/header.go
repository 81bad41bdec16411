package mad

import "encoding/binary"

// Size is the bytes of a MAD, whatever is in it.
const Size = 256

// QueuePair is the number of the queue pair that MADs of connection managers go from and to, and QKey its Q_Key.
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
	REQ     Kind = 0x10 // asks for a connection
	MRA     Kind = 0x11 // received, and the answer takes a while
	REJ     Kind = 0x12 // no
	REP     Kind = 0x13 // the answer to a REQ
	RTU     Kind = 0x14 // the answer to a REP: ready to use
	DREQ    Kind = 0x15 // asks for the end
	DREP    Kind = 0x16 // the answer to that
	SIDRREQ Kind = 0x17 // asks for the queue pair of a service of datagrams
	SIDRREP Kind = 0x18 // the answer to that
)

var kindNames = [...]string{"req", "mra", "rej", "rep", "rtu", "dreq", "drep", "sidr_req", "sidr_rep"}

// Kinds is how many there are; Index counts them from 0.
const Kinds = len(kindNames)

// Index is a dense number, less than Kinds for a kind that Decode lets pass.
func (k Kind) Index() int { return int(k) - int(REQ) }

// String is a name fit for a metric.
func (k Kind) String() string {
	if i := k.Index(); i >= 0 && i < Kinds {
		return kindNames[i]
	}
	return "other"
}

// privates are where private data begins in the message of each kind; it goes to the end.
var privates = [Kinds]int{140, 10, 84, 36, 8, 12, 8, 16, 96}

// MostPrivate is how many bytes of private data a message of the kind has. They are always there, filled up with zeros.
func (k Kind) MostPrivate() int { return Size - headerBytes - privates[k.Index()] }

// Malformed is the reason why a MAD is invalid.
type Malformed uint8

const (
	WellFormed Malformed = iota
	Length               // it has not Size bytes
	Version              // of the base, or of the class
	Class                // another one than that of connection managers
	Method               // another one than Send
	Attribute            // no kind of message that is known here
	// Reasons is how many there are, WellFormed among them.
	Reasons
)

var malformedNames = [Reasons]string{"well_formed", "length", "version", "class", "method", "attribute"}

func (m Malformed) String() string { return malformedNames[m] }
