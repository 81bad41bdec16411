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

var _ rdma.Batcher = (*Device)(nil)

// Begin and End are those of rdma.Batcher. Who finds something to do meanwhile without posting may send what waits.
func (d *Device) Begin() { d.batches.Add(1) }

// End sends also where others have not ended yet.
func (d *Device) End() {
	d.batches.Add(-1)
	if d.batched.Swap(false) || d.owes.Load() {
		d.progress(posting)
	}
}

// joins says whether what was just posted waits for an End. One that comes between the two looks is seen here, or sees the mark.
func (d *Device) joins() bool {
	if d.batches.Load() == 0 {
		return false
	}
	d.batched.Store(true)
	return d.batches.Load() > 0
}

// several says whether more than one packet has come to a queue.
func (m *datapath) several() bool {
	for _, q := range m.queues {
		if _, ok := q.port.Peek(q.looked + 1); ok {
			return true
		}
	}
	return false
}

// defersACK sets an acknowledgement aside that came with one other packet, and says whether it has.
func (m *datapath) defersACK() bool {
	for _, q := range m.queues {
		if m.deferACK(q) {
			return !m.several()
		}
	}
	return false
}

// answer sends what is owed, unless more has come already, which is taken first: then one call of the kernel is for the acknowledgements of all
// of it. That happens once in a row.
func (m *datapath) answer(several bool) {
	if m.owes && (m.late || !several) {
		m.send()
	}
	m.late = m.owes
}

var _ rdma.SpinPoster = (*queuePair)(nil)

// SpinPost is that of rdma.SpinPoster. A message that comes alone is answered before the device is given back.
func (q *queuePair) SpinPost(from rdma.CompletionQueue, dst []rdma.WorkCompletion, limit time.Duration, requests []rdma.SendRequest,
	sges []rdma.SGE) (completed, posted int, err error) {
	c, ok := from.(*completionQueue)
	if ok = ok && c.dev == q.dev && len(requests) == 1 && len(dst) > 0; ok {
		completed, posted, err = q.meet(c, dst, limit, requests, sges)
	} else {
		completed, err = from.Spin(dst, limit)
	}
	if completed == 0 || posted > 0 || err != nil || !good(dst[:completed]) {
		return completed, posted, err
	}
	posted, err = q.PostSend(requests, sges)
	return completed, posted, err
}

// meet is SpinPost of one request, which it leaves to be posted where it has not.
func (q *queuePair) meet(c *completionQueue, dst []rdma.WorkCompletion, limit time.Duration, requests []rdma.SendRequest,
	sges []rdma.SGE) (completed, posted int, err error) {
	var begin time.Time
	for i := uint(0); ; i++ {
		if c.cq.Empty() && q.dev.idles(&c.idle) {
			if i%spins != 0 {
				continue
			}
		} else if completed, posted = q.dev.answer(c, dst, q, &requests[0], sges); completed != 0 {
			return completed, posted, nil
		} else if completed, err = c.look(dst); completed != 0 || err != nil {
			return completed, 0, err
		}
		switch {
		case limit <= 0:
			return 0, 0, nil
		case begin.IsZero():
			begin = time.Now()
		case time.Since(begin) >= limit:
			return 0, 0, nil
		}
	}
}

// answer takes a message that came alone, and what else is complete, and when all of it is good posts a request, where that can be
// sent at once.
func (d *Device) answer(c *completionQueue, dst []rdma.WorkCompletion, q *queuePair, r *rdma.SendRequest, sges []rdma.SGE) (completed, posted int) {
	if !d.lock.TryLock() {
		return 0, 0
	}
	defer d.unlock()
	m := &d.datapath
	m.fastReceive()
	if completed, _ = c.cq.Poll(dst); completed > 0 && good(dst[:completed]) && m.fastPost(q.qp, r, sges) {
		posted = 1
	}
	m.finishReceive()
	if posted > 0 {
		m.send()
	}
	d.did(posting)
	return completed, posted
}

// good says whether all are successes.
func good(cs []rdma.WorkCompletion) bool {
	for i := range cs {
		if cs[i].Status != rdma.Success {
			return false
		}
	}
	return true
}
