package transport

import (
	"time"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
	"github.com/unifiedd/unifiedd/umem"
)

// MaxPieces bounds the pieces of a packet's payload, and the elements of a work request.
const MaxPieces = 16

// Peer identifies the path to a peer. The caller chooses the number. The engine returns it with
// each packet.
type Peer uint32

// Piece is a run of bytes in the region.
type Piece struct {
	Addr   uint64
	Length uint32 // bytes
	_      uint32
}

// Packet is a packet to send: Header, then the payload, which is either Inline or the first Count
// of Pieces. The caller appends padding and ICRC.
type Packet struct {
	Header wire.Header // with the Pad for Length
	Peer   Peer
	QPN    uint32 // of our queue pair
	Length uint32 // of the payload in bytes
	Count  uint32 // of Pieces
	Pieces [MaxPieces]Piece
	// Inline is memory of the engine, valid until its next call. The caller copies it.
	Inline []byte
	// Again marks a retransmission. The request may complete and the program may reuse its memory
	// while the packet still waits for the card, so the caller should copy it. The peer would
	// detect changed bytes by the ICRC, and has already received the right ones.
	Again bool
}

// Arrival is a received packet, decoded and with the right ICRC.
type Arrival struct {
	Header wire.Header
	From   rdma.GID // the source address
	To     rdma.GID // the destination address; used only for a group
	// Payload is the payload without padding: part of one frame, or of several in
	// order, none of them empty; nil without payload.
	Payload []umem.Frame
	GRH     []byte // rdma.GRHBytes of it (wire.Envelope.PutGRH); only datagrams use it
	// Congested means that a router has marked the packet CE.
	Congested bool

	// Kept is set by Engine.Receive: the frames of Payload are on loan now, and return
	// through Engine.Freed. If it is false they are the caller's again.
	Kept bool
}

// Timed reports whether Receive needs the time for this packet.
func (a *Arrival) Timed() bool {
	return a.Header.Opcode.IsResponse() || a.Header.Opcode == wire.CNP || a.Congested
}

// length returns the length of the payload in bytes.
func (a *Arrival) length() (n uint64) {
	for i := range a.Payload {
		n += uint64(a.Payload[i].Len)
	}
	return n
}

// Receive processes packets in the order in which they arrived, and marks those whose frames it
// keeps. Completions are visible when it returns. ACKs and answers wait for Send: if a program
// answers a message before Send, its answer is sent before the ACK.
func (e *Engine) Receive(now Time, batch []Arrival) {
	e.notFast()
	e.time = now
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
		q.slowDown(now)
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

// admits reports whether the queue pair accepts a packet, and if not, why.
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

// partition masks a P_Key without the bit for full membership.
const partition = 0x7fff

// noteAlive reports once that a packet arrived before the connection was established (RTU).
func (q *QueuePair) noteAlive() {
	if !q.alive && q.config.Transport != rdma.UD {
		q.alive = true
		if q.State() == rdma.ReadyToReceive {
			q.engine.event(rdma.Established, q.qpn)
		}
	}
}

// congestionPause is the interval between two CNPs to a peer: the default of cards.
const congestionPause = 50 * time.Microsecond

// cnpBody is the payload of a CNP.
var cnpBody [wire.CNPBytes]byte

// congested handles a packet marked CE: the peer must get a CNP. IBTA specification, volume 1,
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

// putCNP writes the CNP.
func (q *QueuePair) putCNP(p *Packet) {
	q.congests = false
	q.header(p)
	p.Header.Opcode, p.Header.BECN = wire.CNP, true
	p.Length, p.Inline = wire.CNPBytes, cnpBody[:]
	q.engine.count(CNPsSent)
}
