package transport

import (
	"time"

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

// Receive takes packets that came, in the order they came in, and marks those whose frames it keeps. What they
// bring is shown to the program when it returns; what is to be answered waits for Progress, so that
// whoever answers the message sooner than that sends in front of its acknowledgement.
func (e *Engine) Receive(now Time, batch []Arrival) {
	e.notFast()
	e.counts.add(PacketsReceived, uint64(len(batch)))
	for i := range batch {
		a := &batch[i]
		a.Kept = false
		e.receive(now, a)
	}
	e.publish()
}

func (e *Engine) receive(now Time, a *Arrival) {
	h := &a.Header
	if h.DestQPN == multicast {
		e.receiveGroup(a)
		return
	}
	q := e.find(h.DestQPN)
	if q == nil {
		e.drop(UnknownQueuePair)
		return
	}
	if d, ok := q.admits(a); !ok {
		e.drop(d)
		return
	}
	if a.Congested {
		q.congested(now)
	}
	switch k := h.Opcode.Kind(); {
	case k == wire.Congestion:
		e.count(CNPsReceived)
	case q.config.Transport == rdma.UD:
		q.datagram(a)
	case q.config.Transport == rdma.UC:
		q.unreliable(a)
	case h.Opcode.IsResponse():
		q.respond(now, a)
	default:
		q.request(a)
	}
	q.noteAlive()
}

// admits says whether a packet is one the queue pair takes, and why not.
func (q *QueuePair) admits(a *Arrival) (why Drop, ok bool) {
	h := &a.Header
	s := q.State()
	switch t := h.Opcode.Transport(); {
	case s < rdma.ReadyToReceive || s == rdma.Error:
		return WrongState, false
	case t != q.config.Transport && h.Opcode != wire.CNP:
		return WrongTransport, false
	case q.config.Transport != rdma.UD && a.From != q.attrs.Address.GID:
		return WrongPeer, false
	case h.PKey&partition != wire.DefaultPKey&partition:
		return BadPKey, false
	}
	return 0, true
}

// partition is a P_Key without the bit for full membership.
const partition = 0x7fff

// noteAlive tells the program once that a packet came while it waited for the connection to stand.
func (q *QueuePair) noteAlive() {
	if !q.alive && q.config.Transport != rdma.UD {
		q.alive = true
		if q.State() == rdma.ReadyToReceive {
			q.engine.event(rdma.Established, q.qpn)
		}
	}
}

// congestionPause is how long a peer is not told again of congestion: the CNP interval that cards begin with.
const congestionPause = 50 * time.Microsecond

// cnpBody is the payload of a CNP.
var cnpBody [wire.CNPBytes]byte

// congested notes a packet that a router has marked, of which the peer is to be told. IBTA specification, volume 1,
// annex A17.9.
func (q *QueuePair) congested(now Time) {
	e := q.engine
	e.count(CongestionMarks)
	if q.config.Transport == rdma.UD || q.marked != never && now < q.marked.After(congestionPause) {
		return
	}
	q.marked, q.congests = now, true
	e.lists[answering].add(q)
}

// putCNP writes the packet that tells the peer.
func (q *QueuePair) putCNP(p *Packet) {
	q.congests = false
	q.header(p)
	p.Header.Opcode, p.Header.BECN = wire.CNP, true
	p.Length, p.Inline = wire.CNPBytes, cnpBody[:]
	q.engine.count(CNPsSent)
}
