package transport

import (
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
	"github.com/unifiedd/unifiedd/umem"
)

// MaxPieces is the most pieces that the payload of a packet to be sent lies in, and the most
// elements of a work request.
const MaxPieces = 16

// Peer names a way to a peer: a number that the caller gave it, and that comes back with each
// packet to be sent there.
type Peer uint32

// Piece is a run of bytes in the region.
type Piece struct {
	Addr   uint64
	Length uint32 // bytes
	_      uint32
}

// Packet is one to be sent: Header, then the payload, which is either Inline or the first Count of
// Pieces. The caller puts padding and ICRC behind it.
type Packet struct {
	Header wire.Header // Pad is that of Length
	Peer   Peer
	QPN    uint32 // of our queue pair
	Length uint32 // of the payload in bytes
	Count  uint32 // of Pieces
	Pieces [MaxPieces]Piece
	// Inline is memory of the engine's, good until its next call: what is in it is copied.
	Inline []byte
	// Again marks what was sent before. The request may complete, and its memory be used for something
	// else, while the packet still waits for the card: what waits long should be a copy. The peer
	// finds out by the ICRC, and has had the bytes before.
	Again bool
}

// Arrival is a packet that came, decoded, with the right ICRC.
type Arrival struct {
	Header wire.Header
	From   rdma.GID // whose IP address it came from
	To     rdma.GID // looked at where it went to a group
	// Payload is where the payload lies, without padding: part of one frame, or of several in
	// order, without empty ones; nil where there is none.
	Payload []umem.Frame
	GRH     []byte // rdma.GRHBytes of it (wire.Envelope.PutGRH), looked at where it is a datagram
	// Congested is that a router has marked it.
	Congested bool

	// Kept is set by Engine.Receive: the frames of Payload are on loan now, and come back
	// through Engine.Freed. Otherwise they are the caller's again.
	Kept bool
}

// Timed says whether it matters for Receive what time it is.
func (a *Arrival) Timed() bool { return a.Header.Opcode.IsResponse() || a.Congested }

// length is how many bytes the payload has.
func (a *Arrival) length() (n uint64) {
	for i := range a.Payload {
		n += uint64(a.Payload[i].Len)
	}
	return n
}
