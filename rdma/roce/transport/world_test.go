package transport

import (
	"bytes"
	"fmt"
	"net/netip"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
	"github.com/unifiedd/unifiedd/umem"
)

const (
	testDomain Domain = 1
	extentSize        = 1 << 20
	ringFrames        = 256 // for received packets of each end
)

// tb is the part of *testing.T, *testing.B and *rapid.T that these tests need.
type tb interface {
	Helper()
	Error(...any)
	Errorf(string, ...any)
	Fatal(...any)
	Fatalf(string, ...any)
	Cleanup(func())
}

// world is two ends, a link between them, and a clock.
type world struct {
	t     tb
	now   Time
	link  *link
	ends  [2]*end
	batch int // the largest number of packets given to an end at once
	// relieves makes ends send delayed ACKs when no packet arrives, at once or a while later. By
	// then the peer may have timed out and sent again. If soon is set, ends send them no later
	// than late, which is before that timeout. late is 0 if no ACK is delayed.
	relieves, soon bool
	late           Time
	short          bool // messages in one packet use the fast path where possible
	// between, if set, is called for an end after Receive and before Progress, so that a program
	// can act.
	between func(e *end)
}

// end is an engine with its own region, and the work that a provider does around it.
type end struct {
	*Engine
	w        *world
	index    int
	gid      rdma.GID
	book     *umem.Book
	ring     *umem.Holder
	lent     *umem.Holder
	mine     *umem.Holder // extents
	empty    []umem.Frame
	cq       *CompletionQueue
	key      uint32 // of the first extent, with all rights
	template wire.Template
	base     uint64 // of the first extent, which is registered; the second is not
	out      [64]Packet
	id       uint16
	arrivals []Arrival
	frames   [64]umem.Frame
	views    [64]umem.Frame
	grh      [64][rdma.GRHBytes]byte
	malform  [wire.Reasons]int
	done     []rdma.WorkCompletion
	got      []rdma.Event
}

func newWorld(t tb, seed uint64, c Config) *world {
	w := &world{t: t, now: 1, link: newLink(seed), batch: 64}
	for i := range w.ends {
		w.ends[i] = newEnd(w, i, c)
	}
	for i, e := range w.ends {
		path := wire.Path{Source: e.gid, Destination: w.ends[1-i].gid, SourcePort: 0xc123, HopLimit: 64}
		var err error
		if e.template, err = wire.NewTemplate(&path); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func newEnd(w *world, index int, c Config) *end {
	t := w.t
	r, err := umem.Open(umem.Config{Size: 4 * extentSize, Pages: umem.Ordinary, ExtentSize: extentSize, Extents: 2})
	must(t, err)
	e := &end{w: w, index: index, gid: rdma.GIDOf(netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", index+1)))}
	e.book = r.NewBook("test")
	e.ring, err = e.book.NewHolder(umem.OwnerXDP, "ring")
	must(t, err)
	e.lent, err = e.book.NewHolder(umem.OwnerRDMA, "lent")
	must(t, err)
	e.mine, err = e.book.NewHolder(umem.OwnerWorker, "buffers")
	must(t, err)
	e.empty = make([]umem.Frame, ringFrames)
	e.ring.Take(e.empty)
	extents := make([]umem.Frame, 2)
	e.mine.TakeExtents(extents)
	e.base = min(extents[0].Addr, extents[1].Addr)
	keys, err := NewKeys(r.Size(), 64)
	must(t, err)
	all := rdma.LocalWrite | rdma.Remote | rdma.BindWindows
	e.key, err = keys.Register(testDomain, e.base, extentSize, all)
	must(t, err)
	if c.QueuePairs == 0 {
		c.QueuePairs = 16
	}
	if c.MTU == 0 {
		c.MTU = rdma.MTU1024
	}
	c.Region, c.Keys = r, keys
	e.Engine, err = New(c)
	must(t, err)
	e.cq, err = NewCompletionQueue(4096)
	must(t, err)
	t.Cleanup(func() { e.close(t, extents) })
	return e
}

func must(t tb, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// close audits the frames: each must be in the ring or on loan.
func (e *end) close(t tb, extents []umem.Frame) {
	if _, err := e.region.Audit(); err != nil {
		t.Error(err)
	}
	for place := range e.slots {
		if q := e.slots[place].pair; q != nil {
			q.Close()
		}
	}
	e.collect()
	if n := e.lent.Held(); n != 0 {
		t.Errorf("end %d: %d frames are lent, and nobody has them", e.index, n)
	}
	if n := int64(len(e.empty)); n != ringFrames || n != e.ring.Held() {
		t.Errorf("end %d: the ring has %d frames, and should have %d", e.index, n, ringFrames)
	}
	e.ring.Give(e.empty)
	e.mine.Give(extents)
	for _, h := range []*umem.Holder{e.ring, e.lent, e.mine} {
		h.Close()
	}
	if err := e.book.Close(); err != nil {
		t.Error(err)
	}
	if err := e.region.Close(); err != nil {
		t.Error(err)
	}
}

// collect puts returned frames into the ring again.
func (e *end) collect() {
	var fs [64]umem.Frame
	for n := e.Freed(fs[:]); n > 0; n = e.Freed(fs[:]) {
		for i := range fs[:n] {
			fs[i].Addr, _ = e.region.Start(fs[i])
		}
		e.lent.PassTo(e.ring, fs[:n])
		e.empty = append(e.empty, fs[:n]...)
	}
}

// memory returns n bytes of the registered extent.
func (e *end) memory(offset, n int) []byte { return e.data[e.base+uint64(offset):][:n:n] }

func (e *end) sge(offset, n int) rdma.SGE {
	return rdma.SGE{Addr: e.base + uint64(offset), Length: uint32(n), LKey: e.key}
}

// fill writes a pattern and returns it.
func (e *end) fill(offset, n int, seed byte) []byte {
	m := e.memory(offset, n)
	for i := range m {
		m[i] = seed + byte(i*7) + byte(i>>8)
	}
	return bytes.Clone(m)
}

// transmit puts packets on the link.
func (e *end) transmit() (moved bool) {
	n := e.Progress(e.w.now, e.out[:])
	for i := range e.out[:n] {
		p := &e.out[i]
		frame := e.frame(p)
		if l := e.w.link; l.each == nil || !l.each(e.index, &p.Header) {
			l.carry(e.w.now, 1-e.index, frame)
		}
	}
	e.Transmitted(n)
	return n > 0
}

// frame returns the packet in wire format.
func (e *end) frame(p *Packet) []byte {
	payload := bytes.Clone(p.Inline)
	for _, piece := range p.Pieces[:p.Count] {
		payload = append(payload, e.data[piece.Addr:piece.Addr+uint64(piece.Length)]...)
	}
	if len(payload) != int(p.Length) {
		e.w.t.Fatalf("%v: the payload has %d bytes, not %d", p.Header.Opcode, len(payload), p.Length)
	}
	h := &p.Header
	b := make([]byte, e.template.Bytes()+h.Opcode.HeaderBytes()+len(payload)+int(h.Pad)+wire.ICRCBytes)
	e.id++
	n := e.template.Put(b, e.id, len(b)-e.template.Bytes())
	n += h.Encode(b[n:])
	n += copy(b[n:], payload)
	wire.Begin(b[e.template.Network():n]).Finish(b[n:], h.Pad)
	return b
}

// receive gives an end the packets that have arrived at it.
func (w *world) receive() (moved bool) {
	for {
		b, ok := w.link.due(w.now)
		if !ok {
			break
		}
		moved = true
		if w.link.happens(ghost) {
			w.land(b.to, w.ends[1-b.to].ghost())
		}
		w.land(b.to, b.frame)
		w.link.done(b)
	}
	for _, e := range w.ends {
		e.hand()
	}
	return moved
}

// land delivers a frame to an end. The end processes its frames once there are batch of them.
func (w *world) land(to int, frame []byte) {
	e := w.ends[to]
	if e.land(frame); len(e.arrivals) >= w.batch {
		e.hand()
	}
}

// ghost returns an ACK, NAK or answer to packets that the peer never sent, or that were
// acknowledged long ago.
func (e *end) ghost() []byte {
	rnd, peer := e.w.link.rnd, e.w.ends[1-e.index]
	h := wire.Header{PKey: wire.DefaultPKey, MigReq: true, Syndrome: ghosts[rnd.IntN(len(ghosts))], MSN: uint32(rnd.IntN(mask24))}
	h.Opcode = []wire.Opcode{wire.RCAcknowledge, wire.RCReadResponseOnly, wire.RCAtomicAcknowledge}[rnd.IntN(3)]
	for _, s := range peer.slots {
		if q := s.pair; q != nil && (h.DestQPN == 0 || rnd.IntN(2) == 0) {
			h.DestQPN, h.PSN = q.qpn, q.una.Add(-1-rnd.IntN(1<<20))
			if rnd.IntN(2) == 0 {
				h.PSN = q.sent.Add(rnd.IntN(1 << 20))
			}
		}
	}
	return e.frame(&Packet{Header: h})
}

var ghosts = []wire.Syndrome{wire.ACK, wire.ACK, wire.NAKSequence, wire.NAKInvalidRequest, wire.NAKRemoteAccess, wire.NAKRemoteOperation, wire.RNRNAK(1), 0x5f}

// land parses a frame and places it where a card would.
func (e *end) land(b []byte) {
	var env wire.Envelope
	if m := env.Parse(b, len(b)); m != wire.WellFormed {
		e.malform[m]++
		return
	}
	transport := b[env.Transport : env.Transport+env.Length]
	if !wire.Check(b[env.Network : env.Transport+env.Length]) {
		e.malform[wire.ICRCWrong]++
		return
	}
	a := Arrival{From: env.Source, To: env.Destination, Congested: env.ECN() == wire.CE}
	n, m := a.Header.Decode(transport)
	if m == wire.WellFormed {
		var length int
		if length, m = a.Header.PayloadLen(env.Length); m == wire.WellFormed {
			e.place(&a, &env, b, transport[n:n+length])
			return
		}
	}
	e.malform[m]++
}

// place copies the payload to a frame of the ring.
func (e *end) place(a *Arrival, env *wire.Envelope, b, payload []byte) {
	if len(e.empty) == 0 {
		return // the ring is empty: the card drops it
	}
	i := len(e.arrivals)
	f := e.empty[len(e.empty)-1]
	e.empty = e.empty[:len(e.empty)-1]
	e.frames[i] = f
	const room = 58
	view := umem.Frame{Addr: f.Addr + room, Len: uint32(len(payload))}
	if e.views[i] = view; len(payload) > 0 {
		if room+len(payload) <= int(e.region.FrameSize()) {
			copy(e.region.Bytes(view), payload)
			a.Payload = e.views[i : i+1]
		} else {
			e.placeTwo(a, view, payload)
		}
	}
	env.PutGRH(e.grh[i][:], b)
	a.GRH = e.grh[i][:]
	e.arrivals = append(e.arrivals, *a)
}

// placeTwo spreads a payload over two frames.
func (e *end) placeTwo(a *Arrival, view umem.Frame, payload []byte) {
	second := e.empty[len(e.empty)-1]
	e.empty = e.empty[:len(e.empty)-1]
	view.Len = 3584
	second.Len = uint32(len(payload)) - view.Len
	copy(e.region.Bytes(view), payload)
	copy(e.region.Bytes(second), payload[view.Len:])
	a.Payload = []umem.Frame{view, second}
}

// hand gives the engine the packets that have arrived, and takes back the frames that it does not
// keep.
func (e *end) hand() {
	if len(e.arrivals) == 0 {
		return
	}
	if e.w.short {
		e.handFast()
	} else {
		e.Receive(e.w.now, e.arrivals)
	}
	for i := range e.arrivals {
		a := &e.arrivals[i]
		all := []umem.Frame{e.frames[i]}
		if len(a.Payload) == 2 {
			all = append(all, umem.Frame{Addr: a.Payload[1].Addr})
		}
		if a.Kept {
			e.ring.PassTo(e.lent, all)
		} else {
			e.empty = append(e.empty, all...)
		}
	}
	e.arrivals = e.arrivals[:0]
	if e.w.between != nil {
		e.w.between(e)
	}
}

// step does all the work that is possible now, and reports whether there was any.
func (w *world) step() bool {
	moved := w.receive()
	for _, e := range w.ends {
		e.Tick(w.now)
		e.collect()
		moved = e.transmit() || moved
		e.collect()
		e.poll()
	}
	return moved
}

// poll collects completions and events.
func (e *end) poll() {
	var c [64]rdma.WorkCompletion
	for n, _ := e.cq.Poll(c[:]); n > 0; n, _ = e.cq.Poll(c[:]) {
		e.done = append(e.done, c[:n]...)
	}
	var v [16]rdma.Event
	for n := e.Events(v[:]); n > 0; n = e.Events(v[:]) {
		e.got = append(e.got, v[:n]...)
	}
}

// run continues until nothing is left to do, or for limit. It advances the clock to the next
// deadline only if that is within limit.
func (w *world) run(limit time.Duration) {
	end := w.now.After(limit)
	for w.now < end {
		if w.step() || w.relieve() {
			continue
		}
		next, ok := w.next()
		if !ok || next > end {
			return
		}
		w.now = max(w.now+1, next)
	}
}

// keeps is the longest delay of an ACK if soon is set. It is less than any timeout of the tests.
const keeps = 50 * time.Microsecond

// relieve makes ends send their delayed ACKs, and reports whether there were any.
func (w *world) relieve() (any bool) {
	kept := false
	for _, e := range w.ends {
		switch {
		case !w.relieves || !e.HasDeferredACKs():
		case w.late != 0 && w.now >= w.late || w.link.rnd.IntN(2) == 0:
			e.Release()
			any = true
		default:
			kept = true
		}
	}
	if !kept || !w.soon {
		w.late = 0
	} else if w.late == 0 {
		w.late = w.now.After(keeps)
	}
	return any
}

// next returns when the next thing happens.
func (w *world) next() (at Time, ok bool) {
	if len(w.link.onWay) > 0 {
		at, ok = w.link.onWay[0].at, true
	}
	for _, e := range w.ends {
		if d, is := e.NextDeadline(); is && (!ok || d < at) {
			at, ok = d, true
		}
	}
	if w.late != 0 && (!ok || w.late < at) {
		at, ok = w.late, true
	}
	return at, ok
}
