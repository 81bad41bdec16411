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
	hold     = 16 // acknowledgements said by one
)

// datapath is what one thread at a time drives, who has the device's lock: the engine, its sockets and frames.
type datapath struct {
	engine *transport.Engine
	keys   *transport.Keys
	region *umem.Region
	data   []byte
	start  time.Time      // of the engine's clock
	clock  transport.Time // when it was last read

	hands *umem.Holder // frames between the kernel, the engine and the program
	lent  *umem.Holder // frames that the program has, or may take
	pool  framePool

	queues   []*queue
	locals   []local // our addresses
	stripped bool    // the card takes VLAN tags out of packets
	inbound

	port  *xdp.Port // the one that sends
	paths []path
	free  []transport.Peer // of paths
	outbound
	loopback loopback

	idle   int  // calls of poll in a row that found nothing
	owes   bool // something came, and send was not called since
	late   bool // answer has put it off
	counts counts
}

// now is the engine's time.
func (m *datapath) now() transport.Time {
	m.clock = transport.Time(time.Since(m.start)) + 1
	return m.clock
}

// poll takes what came, and does everything else where nothing did. What is to be acknowledged waits for the next
// call, or for a message of the program's, which goes in front.
func (m *datapath) poll() {
	several := m.several() && !m.defersACK()
	m.answer(several)
	took := !several && m.fastReceive()
	m.finishReceive()
	if took || m.receive() {
		m.idle, m.owes = 0, m.engine.Busy()
		return
	}
	if m.idle++; m.idle%idleRounds == 0 {
		m.engine.Release()
	}
	m.send()
}

// round does all there is to do.
func (m *datapath) round() {
	m.receive()
	m.engine.Release()
	m.send()
}

// maxBursts bounds how long one send takes.
const maxBursts = 8

// send sends what is to be sent as long as there is room, acknowledgements last. All that can wait is done when the packets
// are on their way.
func (m *datapath) send() {
	m.owes = false
	for range maxBursts {
		more := m.burst()
		if !m.tidy() && !more {
			return
		}
	}
}

// burst sends as many packets as there is room for, and says whether there may be more.
func (m *datapath) burst() (more bool) {
	room := m.room()
	if room == 0 {
		m.retryTransmit()
		if room = m.room(); room == 0 {
			return false
		}
	}
	n := m.engine.Send(m.out[:room])
	if n == 0 {
		return false
	}
	m.put(m.out[:n])
	m.kick(m.port)
	return n == room
}

// tidy does what follows a burst, and says whether there is more to be sent by that.
func (m *datapath) tidy() (more bool) {
	now := m.now()
	m.engine.Await(now)
	if m.underWay() {
		m.retryTransmit()
	}
	if at, ok := m.engine.NextDeadline(); ok && now >= at {
		m.overdue()
		more = true
	}
	m.collect()
	m.clear()
	m.refill(supplyLater)
	for m.receiveLoopback() {
		more = true
	}
	return more
}

// overdue does what is due. What lies in the rings is taken before: it was there in time, when it was this thread that was away.
func (m *datapath) overdue() {
	for range m.pool.all/batch + 1 { // and no longer, however much comes
		if !m.receive() {
			break
		}
	}
	m.engine.Tick(m.now())
}

// retryTransmit takes back the frames of packets that have left, and has the kernel go on with those that have not: it had no room when it
// was asked, and says nothing when it has.
func (m *datapath) retryTransmit() {
	m.reap()
	if m.underWay() {
		m.kick(m.port)
	}
}

// kick wakes the kernel where that is needed. What it answers is seen by whoever watches the interface; the packets wait.
func (m *datapath) kick(p *xdp.Port) {
	if err := p.Kick(); err != nil {
		m.counts.add(kickErrors, 1)
	}
}
