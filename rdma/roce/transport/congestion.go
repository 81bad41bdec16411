package transport

import (
	"time"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

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
