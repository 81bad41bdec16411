package fanout

import (
	"github.com/unifiedd/unifiedd/internal/fifo"
	"github.com/unifiedd/unifiedd/umem"
)

// refTable records for each message which peers still need its frames, and whether it is
// acknowledged. It is independent of senders, and belongs to one thread.
type refTable struct {
	records []record
	frames  []umem.Frame      // of the records, each frames per record
	each    int               // the most frames of a message
	free    []uint32          // records
	order   fifo.Ring[uint32] // records whose tokens are not returned, oldest first; unused with Nobody
	back    fifo.Ring[umem.Frame]
	held    int // frames in records and back
}

// record is a message.
type record struct {
	token   uint64
	peers   uint64 // a bit for each peer that has it in flight
	frames  uint8
	need    uint8 // acknowledgements that it needs
	have    uint8
	ordered bool // it is in order
}

func newRefTable(messages, each int) refTable {
	l := refTable{records: make([]record, messages), frames: make([]umem.Frame, messages*each), each: each, free: make([]uint32, 0, messages),
		order: fifo.New[uint32](messages), back: fifo.New[umem.Frame](messages * each)}
	for i := messages - 1; i >= 0; i-- {
		l.free = append(l.free, uint32(i))
	}
	return l
}

// room reports whether there is room for a message with this number of frames.
func (l *refTable) room(frames int) bool {
	return len(l.free) > 0 && l.held+frames <= l.back.Cap()
}

// begin adds a message for peers, and returns its record. If need is not 0, the token is returned
// after need acknowledgements. The caller has checked that there is room.
func (l *refTable) begin(message []umem.Frame, token, peers uint64, need int) uint32 {
	id := l.free[len(l.free)-1]
	l.free = l.free[:len(l.free)-1]
	copy(l.framesOf(id), message)
	l.records[id] = record{token: token, peers: peers, frames: uint8(len(message)), need: uint8(need), ordered: need > 0}
	l.held += len(message)
	if need > 0 {
		l.order.Push(id)
	}
	l.settle(id)
	return id
}

func (l *refTable) framesOf(id uint32) []umem.Frame {
	return l.frames[int(id)*l.each : (int(id)+1)*l.each]
}

// done records that a peer no longer needs a message.
func (l *refTable) done(id uint32, peer int, acknowledged bool) {
	r := &l.records[id]
	r.peers &^= 1 << peer
	if acknowledged {
		r.have++
	}
	l.settle(id)
}

// settle frees the frames that no peer needs, and the record once its token is returned.
func (l *refTable) settle(id uint32) {
	r := &l.records[id]
	if r.peers != 0 {
		return
	}
	for _, f := range l.framesOf(id)[:r.frames] {
		l.back.Push(f)
	}
	r.frames = 0
	if !r.ordered {
		l.free = append(l.free, id)
	}
}

// spares reports whether a message needs no more acknowledgements from the peers that have it in
// flight.
func (l *refTable) spares(id uint32) bool { return l.records[id].have >= l.records[id].need }

// sparesAll reports whether spares is true for all messages that a peer has in flight. It checks
// every one of them.
func (l *refTable) sparesAll(peer int) bool {
	for n := range l.order.Len() {
		if id := *l.order.At(n); l.records[id].peers&(1<<peer) != 0 && !l.spares(id) {
			return false
		}
	}
	return true
}

// acknowledged fills dst with tokens of acknowledged messages, in order.
func (l *refTable) acknowledged(dst []uint64) (n int) {
	for n < len(dst) && l.order.Len() > 0 {
		id := *l.order.At(0)
		r := &l.records[id]
		if r.have < r.need {
			break
		}
		dst[n] = r.token
		n++
		l.order.Skip(1)
		if r.ordered = false; r.peers == 0 {
			l.free = append(l.free, id)
		}
	}
	return n
}

// take fills dst with frames that no peer needs.
func (l *refTable) take(dst []umem.Frame) (n int) {
	for n < len(dst) && l.back.Len() > 0 {
		dst[n] = l.back.Pop()
		n++
	}
	l.held -= n
	return n
}

// idle reports whether the table is empty.
func (l *refTable) idle() bool { return len(l.free) == len(l.records) && l.held == 0 }
