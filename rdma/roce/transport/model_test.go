package transport

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/umem"
)

// The registered memory of each end, by use: first for its own requests, then for those of the
// peer.
const (
	sources    = 0         // data to send and write; does not change
	landings   = 64 << 10  // for READs and atomics
	readable   = 320 << 10 // the peer may read it; does not change
	writable   = 384 << 10 // the peer may write it, each place once
	receivable = 640 << 10
	counters   = 1000 << 10 // eight words for atomics
)

// planned is a request and its expected result.
type planned struct {
	rdma.SendRequest
	source, length int
	landing        int    // for READs and atomics
	target         int    // in the peer's memory
	data           []byte // the data to send, write or read, or the value at the target of an atomic
}

// side is an end with its planned requests.
type side struct {
	*end
	q        *QueuePair
	requests []planned
	posted   int
	receives []int // places
	taken    int   // receives posted
	words    [][8]uint64
	before   []byte
	messages [][]byte // messages that arrived in loaned frames
	held     []umem.Frame
	gone     bool // its queue pair was closed during the test
}

// plan draws n requests and executes them on the reference: one after the other, each once.
func plan(t *rapid.T, n int, from, to *side) {
	land, write := landings, writable
	words := [8]uint64{}
	from.words = append(from.words, words)
	for i := range n {
		p := planned{source: rapid.IntRange(0, 32<<10).Draw(t, "source"), length: drawLength(t)}
		p.ID, p.Immediate, p.RKey = uint64(i+1), [4]byte{byte(i), 1, 2, 3}, to.key
		p.Op = rapid.SampledFrom([]rdma.Op{rdma.Send, rdma.SendImmediate, rdma.Write, rdma.WriteImmediate, rdma.Read, rdma.FetchAdd, rdma.CompareSwap}).Draw(t, "op")
		if rapid.IntRange(0, 9).Draw(t, "fence") == 0 {
			p.Flags = rdma.Fence
		}
		p.data = from.before[sources+p.source:][:p.length]
		switch {
		case p.Op == rdma.Write || p.Op == rdma.WriteImmediate:
			p.target = write
			write += p.length
		case p.Op == rdma.Read:
			p.pickRead(t, from, to)
			p.landing = land
			land += p.length
		case isAtomic(p.Op):
			p.length, p.landing = 8, land
			land += 8
			p.execute(t, &words)
			from.words = append(from.words, words)
		}
		p.RemoteAddr = to.base + uint64(p.target)
		from.requests = append(from.requests, p)
	}
}

func drawLength(t *rapid.T) int {
	return rapid.OneOf(rapid.SampledFrom([]int{0, 1, 255, 256, 257, 1024, 4096, 4097}), rapid.IntRange(0, 6000)).Draw(t, "length")
}

// pickRead picks data that does not change: the initial data, or the data of an earlier WRITE.
func (p *planned) pickRead(t *rapid.T, from, to *side) {
	p.target = readable + rapid.IntRange(0, 32<<10).Draw(t, "target")
	p.data = to.before[p.target:][:p.length]
	if i := rapid.IntRange(0, len(from.requests)).Draw(t, "of"); i < len(from.requests) && from.requests[i].Op == rdma.Write {
		p.target, p.length, p.data = from.requests[i].target, from.requests[i].length, from.requests[i].data
	}
}

func (p *planned) execute(t *rapid.T, words *[8]uint64) {
	i := rapid.IntRange(0, 7).Draw(t, "word")
	p.target = counters + 8*i
	p.data = binary.NativeEndian.AppendUint64(nil, words[i])
	p.Compare, p.Swap = rapid.Uint64Range(0, 3).Draw(t, "compare"), rapid.Uint64Range(0, 3).Draw(t, "swap")
	switch {
	case p.Op == rdma.FetchAdd:
		words[i] += p.Compare
	case words[i] == p.Compare:
		words[i] = p.Swap
	}
}

// takesReceive reports whether the request completes a receive of the peer.
func (p *planned) takesReceive() bool {
	return p.Op == rdma.Send || p.Op == rdma.SendImmediate || p.Op == rdma.WriteImmediate
}

func (p *planned) isWrite() bool { return p.Op == rdma.Write || p.Op == rdma.WriteImmediate }

// postSome posts the next n requests, as far as the queue has room.
func (s *side) postSome(n int) {
	for ; n > 0 && s.posted < len(s.requests) && !s.gone; n-- {
		p := &s.requests[s.posted]
		at := p.source
		if reads(p.Op) {
			at = p.landing
		}
		cut := p.length / 3
		r := p.SendRequest
		if s.w.short && s.fastPost(s.q, r, s.sge(at, p.length)) {
			s.posted++
			continue
		}
		r.SGEs = 2
		if _, err := s.q.PostSend([]rdma.SendRequest{r}, []rdma.SGE{s.sge(at, cut), s.sge(at+cut, p.length-cut)}); err != nil {
			return
		}
		s.posted++
	}
}

// postReceives posts n receives, each as long as any message.
func (s *side) postReceives(n int) {
	for ; n > 0 && s.q.loans == nil && s.taken < len(s.receives) && !s.gone; n-- {
		at := s.receives[s.taken]
		r := rdma.ReceiveRequest{ID: uint64(1000 + s.taken), SGEs: 2}
		if _, err := s.q.PostReceive([]rdma.ReceiveRequest{r}, []rdma.SGE{s.sge(at, 1000), s.sge(at+1000, 5000)}); err != nil {
			return
		}
		s.taken++
	}
}

// takeFrames takes messages out of loaned frames, and returns those frames a few steps later.
func (s *side) takeFrames(most int) {
	if s.q.loans == nil || s.gone {
		return
	}
	var f [1]umem.Frame
	for more := false; s.q.Loaned(f[:]) == 1; more = f[0].Continues() {
		if !more {
			s.messages = append(s.messages, nil)
		}
		last := &s.messages[len(s.messages)-1]
		*last = append(*last, s.region.Bytes(f[0])...)
		s.held = append(s.held, f[0])
	}
	if n := len(s.held); n > most {
		s.q.Return(s.held)
		s.held = nil
	}
}

// TestModel: two queue pairs run random requests over a link with random faults. Each request is
// executed once and in order, as in the reference, or a prefix is and the next fails with the right
// status.
func TestModel(t *testing.T) {
	check(t, checkModel)
}

func checkModel(t *rapid.T) {
	m := drawModel(t)
	m.act(t)
	m.finish()
	m.check(t, m.link.faults == faults{} && m.sides[0].q.Query().RNRRetries == 7)
}

// model is a world with two queue pairs and their planned requests.
type model struct {
	*world
	options
	sides [2]*side
}

func drawModel(t *rapid.T) *model {
	w := newWorld(t, rapid.Uint64().Draw(t, "seed"), Config{MTU: rdma.MTU4096, Window: rapid.IntRange(1, 64).Draw(t, "window"), Burst: rapid.IntRange(1, 20).Draw(t, "burst"),
		Hold: rapid.IntRange(1, 9).Draw(t, "hold")})
	w.relieves, w.short = true, rapid.Bool().Draw(t, "short")
	w.batch = rapid.IntRange(1, 64).Draw(t, "batch")
	w.link.faults = drawFaults(t)
	o := options{depth: 8, psn: rapid.SampledFrom([]uint32{0, 5, mask24 - 3, mask24, 1 << 23}).Draw(t, "psn"), fresh: rapid.Bool().Draw(t, "fresh"),
		mtu: rapid.SampledFrom([]rdma.MTU{rdma.MTU256, rdma.MTU1024, rdma.MTU4096}).Draw(t, "mtu")}
	if rapid.Bool().Draw(t, "frames") {
		o.loans = rapid.IntRange(24, 60).Draw(t, "loans")
	}
	o.tweak = drawAttributes(t)
	a, b := w.pair(o)
	a.limit, b.limit = rapid.IntRange(1, 9).Draw(t, "most"), rapid.IntRange(1, 9).Draw(t, "most")
	w.soon = a.Query().Retries == 0 // a sender without retries needs its ACK before the timeout
	m := &model{w, o, [2]*side{newSide(w.ends[0], a), newSide(w.ends[1], b)}}
	for i, s := range m.sides {
		plan(t, rapid.IntRange(0, 20).Draw(t, "requests"), s, m.sides[1-i])
	}
	return m
}

// check compares the outcome with the reference.
func (m *model) check(t *rapid.T, patient bool) {
	for i, s := range m.sides {
		checkSide(t, s, m.sides[1-i], patient)
	}
	known.add(m)
}

func drawFaults(t *rapid.T) (f faults) {
	for kind := range f {
		f[kind] = rapid.SampledFrom([]float64{0, 0, 0, 0.001, 0.01, 0.1, 0.2}).Draw(t, faultNames[kind])
	}
	return f
}

func drawAttributes(t *rapid.T) func(*rdma.Attributes) {
	r, rnr, reads := uint8(rapid.IntRange(0, 7).Draw(t, "retries")), uint8(rapid.IntRange(5, 7).Draw(t, "rnr")), uint8(rapid.IntRange(1, 5).Draw(t, "reads"))
	return func(a *rdma.Attributes) {
		a.Retries, a.RNRRetries, a.MaxReads, a.MaxRemoteReads, a.MinRNRTimer, a.Timeout = r, rnr, reads, 5, 8, 6
	}
}

func newSide(e *end, q *QueuePair) *side {
	s := &side{end: e, q: q}
	e.fill(sources, landings-sources, byte(e.index))
	e.fill(readable, writable-readable, byte(e.index+100))
	s.before = bytes.Clone(e.memory(0, extentSize))
	for at := receivable; at+6000 <= counters; at += 6000 {
		s.receives = append(s.receives, at)
	}
	return s
}

// act posts requests and lets time pass, at random.
func (m *model) act(t *rapid.T) {
	for range rapid.IntRange(0, 20).Draw(t, "actions") {
		s := m.sides[rapid.IntRange(0, 1).Draw(t, "side")]
		s.postSome(rapid.IntRange(0, 4).Draw(t, "sends"))
		s.postReceives(rapid.IntRange(0, 4).Draw(t, "receives"))
		s.takeFrames(rapid.IntRange(0, 20).Draw(t, "hold"))
		m.run(time.Duration(rapid.IntRange(0, 300).Draw(t, "µs")) * time.Microsecond)
	}
}

// finish posts everything that is left, and lets time pass until nothing happens.
func (m *model) finish() {
	for range 40 {
		for _, s := range m.sides {
			s.postReceives(100)
			s.postSome(100)
			s.takeFrames(0)
		}
		m.run(10 * time.Millisecond)
	}
}

// checkSide compares the outcome of one side's requests, at that side and at its peer.
func checkSide(t *rapid.T, from, to *side, patient bool) {
	good := from.checkSends(t, patient)
	came := to.checkReceives(t, from.requests, good)
	from.checkLandings(t, good)
	to.checkMemory(t, from, good, came)
}

// checkSends checks the completions of requests: all are there, in order, and only a prefix
// succeeded. It returns the length of the prefix.
func (s *side) checkSends(t *rapid.T, patient bool) (good int) {
	sends := s.sends()
	if len(sends) > s.posted || !s.gone && (len(sends) != s.posted || s.posted != len(s.requests)) {
		t.Fatalf("end %d: %d of %d requests were posted and %d completed, in %v", s.index, s.posted, len(s.requests), len(sends), s.q.State())
	}
	for i, c := range sends {
		switch {
		case c.ID != uint64(i+1):
			t.Fatalf("end %d: completion %d is of request %d", s.index, i+1, c.ID)
		case c.Status == rdma.Success && good == i:
			good++
		case patient: // nothing may fail
			t.Fatalf("end %d: request %d ended with %v", s.index, i+1, c.Status)
		case good == i && (c.Status == rdma.RetryExceeded || c.Status == rdma.ReceiverNotReadyExceeded):
		case c.Status == rdma.WorkFlushed:
		default:
			t.Fatalf("end %d: request %d of which %d are good ended with %v", s.index, i+1, good, c.Status)
		}
	}
	return good
}

// checkReceives checks the messages that arrived: they are those of the peer's requests, in order,
// and at least those that completed at the peer. It returns their number.
func (s *side) checkReceives(t *rapid.T, requests []planned, good int) (came int) {
	var wanted []planned
	least := 0
	for i, p := range requests {
		if p.takesReceive() {
			wanted = append(wanted, p)
			if i < good {
				least++
			}
		}
	}
	frames := s.messages
	for _, c := range s.done {
		if c.Kind < rdma.Received || c.Status != rdma.Success {
			continue
		}
		if came == len(wanted) {
			t.Fatalf("end %d: message %d was never sent", s.index, came+1)
		}
		p := &wanted[came]
		s.checkReceive(t, p, &c, came, &frames)
		came++
	}
	if came < least {
		t.Fatalf("end %d: %d messages came, and the peer was told of %d", s.index, came, least)
	}
	if len(frames) != 0 {
		t.Fatalf("end %d: %d messages in frames have no completion", s.index, len(frames))
	}
	return came
}

func (s *side) checkReceive(t *rapid.T, p *planned, c *rdma.WorkCompletion, n int, frames *[][]byte) {
	kind := rdma.Received
	if p.isWrite() {
		kind = rdma.ReceivedWrite
	}
	if c.Kind != kind || int(c.Length) != p.length || p.Op != rdma.Send && c.Immediate() != p.Immediate {
		t.Fatalf("end %d: message %d came as %s, want %v of %d bytes", s.index, n+1, show(c), p.Op, p.length)
	}
	if p.isWrite() {
		return
	}
	got := s.memory(s.receives[n], p.length)
	if s.q.loans != nil {
		if got = nil; p.length > 0 {
			got, *frames = (*frames)[0], (*frames)[1:]
		}
	} else if c.ID != uint64(1000+n) {
		t.Fatalf("end %d: message %d is in receive %d", s.index, n+1, c.ID)
	}
	same(t, "message", got, p.data)
}

// checkLandings checks the data that READs and atomics returned.
func (s *side) checkLandings(t *rapid.T, good int) {
	now := s.memory(0, extentSize)
	for i, p := range s.requests {
		if reads(p.Op) {
			s.settle(t, "landing", now, p.landing, p.data, i < good)
		}
	}
	if !bytes.Equal(now[sources:readable], s.before[sources:readable]) {
		t.Fatalf("end %d: memory of its own requests changed that no READ was for", s.index)
	}
}

// settle checks that a place holds data, or part of it if the request failed, and then restores the
// original bytes.
func (s *side) settle(t *rapid.T, what string, now []byte, at int, data []byte, done bool) {
	got, was := now[at:][:len(data)], s.before[at:][:len(data)]
	for i := range got {
		if got[i] != data[i] && (done || got[i] != was[i]) {
			t.Fatalf("end %d: %s at %#x: byte %d of %d is %#x, want %#x", s.index, what, at, i, len(data), got[i], data[i])
		}
	}
	copy(got, was)
}

// checkMemory checks the results of the peer's requests in this side's memory, and that nothing
// else changed.
func (s *side) checkMemory(t *rapid.T, from *side, good, came int) {
	now := s.memory(0, extentSize)
	atomics, doneAtomics := 0, 0
	for i, p := range from.requests {
		switch {
		case p.isWrite():
			s.settle(t, "WRITE", now, p.target, p.data, i < good)
		case isAtomic(p.Op):
			if atomics++; i < good {
				doneAtomics++
			}
		}
	}
	s.checkWords(t, from.words[doneAtomics:atomics+1], now)
	for i := range min(came+1, len(s.receives)) { // the next receive may hold part of a message
		copy(now[s.receives[i]:][:6000], s.before[s.receives[i]:])
	}
	if !bytes.Equal(now[readable:], s.before[readable:]) {
		t.Fatalf("end %d: memory changed that nothing was for", s.index)
	}
	if second := s.data[s.base+extentSize:][:extentSize]; slices.ContainsFunc(second, func(b byte) bool { return b != second[0] }) {
		t.Fatalf("end %d: memory changed that is not registered", s.index)
	}
}

// checkWords checks that the words of atomics equal those of the reference at some time: not before
// the last atomic that completed at the peer, and not after the last one that it posted.
func (s *side) checkWords(t *rapid.T, possible [][8]uint64, now []byte) {
	var words [8]uint64
	for i := range words {
		words[i] = binary.NativeEndian.Uint64(now[counters+8*i:])
	}
	if !slices.Contains(possible, words) {
		t.Fatalf("end %d: the words are %v, want one of %v", s.index, words, possible)
	}
	copy(now[counters:][:64], s.before[counters:])
}
