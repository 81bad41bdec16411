package roce

import (
	"time"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/transport"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

const (
	batch    = 64 // packets at once
	maxChain = 32 // frames of a received packet
	hold     = 16 // the most ACKs of a queue pair that one ACK stands for
)

// datapath is the engine with its sockets and frames. One thread at a time drives it: the one that
// holds the device's lock.
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

	idle      int  // empty calls of poll in a row
	txPending bool // packets were received and send was not called since
	postponed bool // answer has postponed send once
	counts    counts
}

// now reads the engine's clock.
func (m *datapath) now() transport.Time {
	m.clock = transport.Time(time.Since(m.start)) + 1
	return m.clock
}

// poll receives packets. It does the rest of the work only if none arrived. ACKs wait for the next
// call, or for a message of the program, whichever is first.
func (m *datapath) poll() {
	several := m.several() && !m.defersACK()
	m.answer(several)
	took := !several && m.fastReceive()
	m.finishReceive()
	if took || m.receive() {
		m.idle, m.txPending = 0, m.engine.Busy()
		return
	}
	if m.idle++; m.idle%idleRounds == 0 {
		m.engine.Release()
	}
	m.send()
}

// round does all the work there is.
func (m *datapath) round() {
	m.receive()
	m.engine.Release()
	m.send()
}

// maxBursts bounds the time of one send.
const maxBursts = 8

// send sends as long as there is room, requests before ACKs. It does all work that can wait after
// the kernel has the packets.
func (m *datapath) send() {
	m.txPending = false
	for range maxBursts {
		more := m.sendBurst()
		if !m.afterBurst() && !more {
			return
		}
	}
}

// sendBurst sends as many packets as there is room for, and reports whether there may be more.
func (m *datapath) sendBurst() (more bool) {
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

// afterBurst does the bookkeeping after a burst, and reports whether it produced more to send.
func (m *datapath) afterBurst() (more bool) {
	now := m.now()
	m.engine.Await(now)
	if m.unreaped() {
		m.retryTransmit()
	}
	if at, ok := m.engine.NextDeadline(); ok && now >= at {
		m.handleDeadline()
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

// handleDeadline handles expired deadlines. It receives first: the packets in the rings may have come in
// time while this thread was not running.
func (m *datapath) handleDeadline() {
	for range m.pool.all/batch + 1 { // bounded, even if packets keep arriving
		if !m.receive() {
			break
		}
	}
	m.engine.Tick(m.now())
}

// retryTransmit reaps sent packets and makes the kernel continue with the others. A kernel that had
// no room does not say when it has room again.
func (m *datapath) retryTransmit() {
	m.reap()
	if m.unreaped() {
		m.kick(m.port)
	}
}

// kick wakes the kernel if it needs that. An error is counted and not returned: the packets stay in
// the ring, and network.Interface reports a link that is down.
func (m *datapath) kick(p *xdp.Port) {
	if err := p.Kick(); err != nil {
		m.counts.add(kickErrors, 1)
	}
}

var _ rdma.Batcher = (*Device)(nil)

// Begin implements rdma.Batcher. A thread that has other work before End may still send the posted
// requests.
func (d *Device) Begin() { d.batches.Add(1) }

// End implements rdma.Batcher. It sends even if other threads have not called End yet.
func (d *Device) End() {
	d.batches.Add(-1)
	if d.heldBack.Swap(false) || d.txPending.Load() {
		d.progress(posting)
	}
}

// joins reports whether a posted request waits for an End. The second load closes the race with an
// End between the first load and the store.
func (d *Device) joins() bool {
	if d.batches.Load() == 0 {
		return false
	}
	d.heldBack.Store(true)
	return d.batches.Load() > 0
}

// several reports whether a queue has more than one packet.
func (m *datapath) several() bool {
	for _, q := range m.queues {
		if _, ok := q.port.Peek(q.looked + 1); ok {
			return true
		}
	}
	return false
}

// defersACK defers an ACK that arrived with one other packet, and reports whether it did.
func (m *datapath) defersACK() bool {
	for _, q := range m.queues {
		if m.deferACK(q) {
			return !m.several()
		}
	}
	return false
}

// answer sends ACKs for what the last poll received. If more packets have arrived it postpones that
// once, so that one system call carries the ACKs of all of them.
func (m *datapath) answer(several bool) {
	if m.txPending && (m.postponed || !several) {
		m.send()
	}
	m.postponed = m.txPending
}
