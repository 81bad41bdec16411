package transport

import (
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// Receive takes packets that came, in the order they came in, and marks those whose frames it keeps. What they
// bring is shown to the program when it returns; what is to be answered waits for Progress, so that
// whoever answers the message sooner than that sends in front of its acknowledgement.
func (e *Engine) Receive(now Time, batch []Arrival) {
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
