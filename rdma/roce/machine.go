package roce

import (
	"time"

	"github.com/unifiedd/unifiedd/rdma/roce/transport"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

const (
	batch    = 64 // packets at once
	maxChain = 32 // frames of a packet that came
)

// machine is what one thread at a time drives, who has the device's lock: the engine, its sockets and frames.
type machine struct {
	engine *transport.Engine
	keys   *transport.Keys
	region *umem.Region
	data   []byte
	start  time.Time // of the engine's clock

	hands *umem.Holder // frames between the kernel, the engine and the program
	lent  *umem.Holder // frames that the program has, or may take
	stock stock

	queues   []*queue
	locals   []local // our addresses
	stripped bool    // the card takes VLAN tags out of packets
	inbound

	port  *xdp.Port // the one that sends
	paths []path
	free  []transport.Peer // of paths
	outbound
	own own

	owes   bool // something came, and send was not called since
	counts counts
}

// now is the engine's time.
func (m *machine) now() transport.Time { return transport.Time(time.Since(m.start)) + 1 }

// poll takes what came, and does everything else where nothing did. What is to be acknowledged waits for the next
// call, or for a message of the program's, which goes in front.
func (m *machine) poll() {
	if m.owes {
		m.send()
	}
	if m.owes = m.receive(); !m.owes {
		m.send()
	}
}

// round does all there is to do.
func (m *machine) round() {
	m.receive()
	m.send()
}

// maxBursts bounds how long one send takes.
const maxBursts = 8

// send sends what is to be sent as long as there is room, acknowledgements last.
func (m *machine) send() {
	m.owes = false
	now := m.now()
	if at, ok := m.engine.NextDeadline(); ok && now >= at {
		m.overdue()
	}
	if m.underWay() {
		m.urge()
	}
	m.collect()
	for range maxBursts {
		room := m.room()
		n := m.engine.Progress(now, m.out[:room])
		m.put(m.out[:n])
		if n > 0 {
			m.kick(m.port)
			m.reap()
		}
		for m.receiveOwn() {
		}
		if n < room || room == 0 {
			return
		}
	}
}

// overdue does what is due. What lies in the rings is taken before: it was there in time, when it was this thread that was away.
func (m *machine) overdue() {
	for range m.stock.all/batch + 1 { // and no longer, however much comes
		if !m.receive() {
			break
		}
	}
	m.engine.Tick(m.now())
}

// urge takes back the frames of packets that have left, and has the kernel go on with those that have not: it had no room when it
// was asked, and says nothing when it has.
func (m *machine) urge() {
	m.reap()
	if m.underWay() {
		m.kick(m.port)
	}
}

// kick wakes the kernel where that is needed. What it answers is seen by whoever watches the interface; the packets wait.
func (m *machine) kick(p *xdp.Port) {
	if err := p.Kick(); err != nil {
		m.counts.add(kickErrors, 1)
	}
}
