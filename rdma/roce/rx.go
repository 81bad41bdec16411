package roce

import (
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/transport"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// queue is a receive queue of the interface.
type queue struct {
	port   *xdp.Port
	frames [batch + maxChain]umem.Frame
	n      int // frames of a packet whose rest is to come
	out    int // frames in its fill ring or with the kernel
	most   int // upper bound of out
	looked int // frames in its ring whose packets the fast path has processed
}

// inbound holds a batch of received packets while they are parsed.
type inbound struct {
	envelope    wire.Reader
	mine        bool // packets with this envelope are addressed to us and not marked CE
	fast        wire.Only
	open        transport.FastReceive // a message that was placed and is not finished
	deferred    [1]umem.Frame         // an ACK that finishReceive will process,
	hasDeferred bool                  // if this is set
	arrivals    [batch + maxChain]transport.Arrival
	chains      [batch + maxChain][]umem.Frame // the frames of each arrival
	views       [batch + maxChain]umem.Frame   // the payload in those frames
	viewed      int
	grh         [batch + maxChain][rdma.GRHBytes]byte
	freed       [batch]umem.Frame
	one         [1]umem.Frame
	at          int // index in locals of the last packet's destination
}

// receive gives received packets to the engine, and reports whether there were any.
func (m *datapath) receive() (came bool) {
	for _, q := range m.queues {
		if n := q.port.Recv(q.frames[q.n : q.n+batch]); n > 0 {
			m.received(q, n)
			came = true
		}
	}
	return came || m.receiveLoopback()
}

// received processes n more frames of a queue.
func (m *datapath) received(q *queue, n int) {
	q.out -= n
	if q.looked > 0 { // and then q.n is 0
		done := min(q.looked, n)
		q.looked -= done
		m.putBackAll(q.frames[:done])
		n = copy(q.frames[:], q.frames[done:n])
	}
	frames := q.frames[:q.n+n]
	whole := umem.Whole(frames)
	m.read(frames[:whole])
	if q.n = copy(q.frames[:], frames[whole:]); q.n >= maxChain { // longer than any interface's MTU
		m.counts.add(tooLong, 1)
		m.putBackAll(q.frames[:q.n])
		q.n = 0
	}
	m.refill(supplyAt)
}

// received refills queues that miss at least supplyAt frames. afterBurst, which has more time,
// refills those that miss supplyLater.
const (
	supplyAt    = 64
	supplyLater = 8
)

// refill gives frames to queues that miss at least given frames, or half of what they should have.
func (m *datapath) refill(given int) {
	for _, q := range m.queues {
		if q.most-q.out >= min(given, q.most/2) {
			m.supply(q)
			m.kick(q.port)
		}
	}
}

// supply gives empty frames to the kernel.
func (m *datapath) supply(q *queue) {
	empty := m.pool.empty
	n := min(len(empty), q.most-q.out)
	if n <= 0 {
		return
	}
	took := q.port.Supply(empty[len(empty)-n:])
	q.out += took
	kept := copy(empty[len(empty)-n:], empty[len(empty)-n+took:])
	m.pool.empty = empty[:len(empty)-n+kept]
}

// putBackAll returns frames to the pool.
func (m *datapath) putBackAll(frames []umem.Frame) {
	for i := range frames {
		m.putBack(frames[i])
	}
}

// read gives whole packets to the engine. When it returns, all frames that the engine did not keep
// are in the pool again.
func (m *datapath) read(frames []umem.Frame) {
	n, timed := 0, false
	m.viewed = 0
	for len(frames) > 0 {
		chain := frames[:1]
		for chain[len(chain)-1].Continues() {
			chain = frames[:len(chain)+1]
		}
		frames = frames[len(chain):]
		m.arrivals[n] = transport.Arrival{}
		if why := m.parse(&m.arrivals[n], chain, n); why != wire.WellFormed {
			m.counts.malformed[why]++
			m.putBackAll(chain)
			continue
		}
		why := m.notFor(&m.envelope.Envelope)
		if m.mine = why == 0 && m.envelope.ECN() != wire.CE; why != 0 {
			m.counts.add(why, 1)
			m.putBackAll(chain)
			continue
		}
		timed = timed || m.arrivals[n].Timed()
		m.chains[n] = chain
		n++
	}
	if n == 0 {
		return
	}
	if timed {
		m.now()
	}
	m.engine.Receive(m.clock, m.arrivals[:n])
	for i := range m.arrivals[:n] {
		m.passFrames(&m.arrivals[i], m.chains[i])
	}
}

// parse reads a packet whose headers all lie in its first frame. n is its index in the batch, which
// selects the buffer for the GRH.
func (m *datapath) parse(a *transport.Arrival, chain []umem.Frame, n int) wire.Malformed {
	e, total := &m.envelope, 0
	for i := range chain {
		total += int(chain[i].Len)
	}
	first := m.region.Bytes(chain[0])
	if why := e.Parse(first, total); why != wire.WellFormed {
		return why
	}
	if !m.intact(chain, e.Network, e.Transport+e.Length) {
		return wire.ICRCWrong
	}
	headers, why := a.Header.Decode(first[min(e.Transport, len(first)):min(e.Transport+e.Length, len(first))])
	if why != wire.WellFormed {
		return why
	}
	length, why := a.Header.PayloadLen(e.Length)
	if why != wire.WellFormed {
		return why
	}
	a.From, a.To, a.Congested = e.Source, e.Destination, e.ECN() == wire.CE
	a.Payload = m.view(chain, e.Transport+headers, length)
	if a.Header.Opcode.Transport() == rdma.UD {
		e.PutGRH(m.grh[n][:], first)
		a.GRH = m.grh[n][:]
	}
	return wire.WellFormed
}

// intact reports whether the ICRC is right. The IP header begins at offset from and the ICRC ends
// at offset to.
func (m *datapath) intact(chain []umem.Frame, from, to int) bool {
	first := m.region.Bytes(chain[0])
	c := wire.Begin(first[from:min(to, len(first))])
	left := to - len(first)
	for i := 1; i < len(chain) && left > 0; i++ {
		b := m.region.Bytes(chain[i])
		c = c.Add(b[:min(left, len(b))])
		left -= len(b)
	}
	return c.Intact()
}

// view returns the part of the packet's frames that holds length bytes from offset on.
func (m *datapath) view(chain []umem.Frame, offset, length int) []umem.Frame {
	begin := m.viewed
	for i := 0; length > 0; i++ {
		size := int(chain[i].Len)
		if offset >= size {
			offset -= size
			continue
		}
		n := min(size-offset, length)
		m.views[m.viewed] = umem.Frame{Addr: chain[i].Addr + uint64(offset), Len: uint32(n)}
		m.viewed++
		length, offset = length-n, 0
	}
	return m.views[begin:m.viewed]
}

// passFrames passes the frames that the engine kept to the program, and the others to the pool.
func (m *datapath) passFrames(a *transport.Arrival, chain []umem.Frame) {
	if !a.Kept {
		m.putBackAll(chain)
		return
	}
	next := 0
	for i := range chain {
		if next < len(a.Payload) && a.Payload[next].Addr&^(m.chunk-1) == chain[i].Addr&^(m.chunk-1) {
			m.hands.PassTo(m.lent, a.Payload[next:next+1])
			next++
			continue
		}
		m.putBack(chain[i])
	}
}
