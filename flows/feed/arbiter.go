package feed

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/unifiedd/unifiedd/internal/counter"
)

// Config configures an Arbiter.
type Config struct {
	Lines   int           // at least one
	Server  bool          // the last line is a retransmission server, which leaves out most messages
	Held    int           // packets behind a gap that may be held
	Longest int           // bytes of the longest payload
	Gap     time.Duration // from when a gap is seen until it is declared
	Ask     time.Duration // from when a gap is seen until it is asked for; 0: never
	Counter *Counter      // how plain packets are numbered; nil: packets are those of MoldUDP64
}

// farthest is how far ahead of the next message a packet may be. More is a damaged packet, or a hostile one.
const farthest = 1 << 32

// Buffers that do not hold a packet behind a gap.
const (
	ofSession = iota // the first packet of a new session
	ofSecond         // the second packet of a new session of plain packets
	ofCurrent        // what Keep kept
	ownBuffers
)

// Arbiter puts messages in order. Make it with New.
type Arbiter struct {
	config  Config
	started bool
	session Session
	before  Session // the last one, whose late packets do not count
	older   bool    // before is set
	ended   bool    // the session has ended
	next    uint64  // the next message to be given out
	high    uint64  // the first sequence number that nobody has announced
	upTo    uint64  // gaps before this message are declared

	current Packet // whose messages are given out now
	line    int    // where it came from
	buffer  int    // where it is held, if it is not 0

	plain plain // of plain packets

	changing bool   // a new session waits until the messages of the old one are given out
	pending  Packet // its first packet
	origin   int    // where that came from

	held  []held // packets behind the gap, by sequence number
	free  []int  // buffers of no packet
	store []byte // buffers

	restart  restart       // packets that a restarted sender may have sent, under the same name
	now      time.Duration // as At and Tick have said
	begun    time.Duration // when the session began
	aged     uint64        // messages before this one were given out longer than Gap ago
	younger  uint64        // the same, from turned+Gap on
	turned   time.Duration
	finished bool

	open  bool          // there is a gap
	start uint64        // its first message
	since time.Duration // when it was seen, of the caller's clock
	asked bool          // for it

	lines []line
	total struct{ given, lost, gaps, asks, ends, sessions, restarts counter.Counter }
	shown [2]counter.Counter // the session, as two words
}

type held struct {
	packet       Packet
	line, buffer int
}

// line is a line's own sequence and counters.
type line struct {
	next                         uint64 // the message that is to come on this line
	began                        bool
	back                         bool   // it has gone back: see restart
	start, run                   uint64 // to the first one, and then the second one is to come
	wins, repeats, missing, late counter.Counter
	refused                      [reasons]counter.Counter
}

// New makes an Arbiter.
func New(c Config) (*Arbiter, error) {
	if c.Counter != nil && !c.Counter.valid() {
		return nil, errors.New("feed: a counter of 2, 4 or 8 bytes within a packet is needed")
	}
	if c.Lines < 1 || c.Held < 1 || c.Longest < headerLen || c.Gap <= 0 || c.Ask < 0 || c.Ask > c.Gap {
		return nil, errors.New("feed: lines, room for packets behind a gap and a time for gaps are needed, and asking comes before declaring")
	}
	a := &Arbiter{config: c, lines: make([]line, c.Lines), held: make([]held, 0, c.Held), restart: restart{held: make([]held, 0, c.Held)}, store: make([]byte, (c.Held+ownBuffers)*c.Longest)}
	for i := range c.Held {
		a.free = append(a.free, i+ownBuffers)
	}
	return a, nil
}

// Receive takes the payload of a UDP packet that came on a line, at the time that At has said. Before the caller calls it again, or changes the
// payload, it calls Next until there is no message, or Keep.
func (a *Arbiter) Receive(from int, payload []byte) {
	why := TooLong
	switch {
	case len(payload) > a.config.Longest:
	case a.config.Counter != nil:
		why = a.count(from, payload)
	default:
		var p Packet
		if p, why = Parse(payload); why == Good {
			why = a.admit(from, p, payload)
		}
	}
	if why != Good {
		a.lines[from].refused[why].Add(1)
	}
}

// admit sorts a packet by its session.
func (a *Arbiter) admit(from int, p Packet, payload []byte) Reason {
	switch {
	case !a.started:
		a.begin(p.Session, p.Sequence)
	case p.Session == a.session:
	case a.older && p.Session == a.before:
		if a.goesBack(from, &p, true) {
			return a.keepForRestart(from, p, payload, true)
		}
		return OldSession
	default:
		a.dropRestart()
		a.pending, a.origin, a.changing = a.copied(ofSession, p, payload), from, true
		return Good
	}
	return a.sort(from, p, payload)
}

// copied returns a packet whose payload is in a buffer. No message was taken from it.
func (a *Arbiter) copied(buffer int, p Packet, payload []byte) Packet {
	b := a.store[buffer*a.config.Longest:][:len(payload):len(payload)]
	copy(b, payload)
	p.blocks = b[len(payload)-len(p.blocks):]
	return p
}

// begin begins a session.
func (a *Arbiter) begin(s Session, first uint64) {
	if a.plain.last = a.next; a.started && s != a.session {
		a.before, a.older = a.session, true
	}
	a.started, a.session, a.ended, a.open = true, s, false, false
	a.next, a.high, a.upTo, a.plain.first = first, first, first, first
	a.aged, a.younger, a.begun = first, first, a.now
	for i := range a.lines {
		a.lines[i].began = false
	}
	a.total.sessions.Add(1)
	a.shown[0].Set(binary.BigEndian.Uint64(s[:]))
	a.shown[1].Set(uint64(binary.BigEndian.Uint16(s[8:])))
}

// sort gives out a packet, holds it, or drops what there was already.
func (a *Arbiter) sort(from int, p Packet, payload []byte) Reason {
	end := p.Sequence + p.Count
	if end > a.next && end-a.next > farthest {
		return TooFar
	}
	if a.goesBack(from, &p, false) {
		return a.keepForRestart(from, p, payload, false)
	}
	if a.restart.open {
		a.goesOn(from, &p)
	}
	a.follow(from, &p)
	a.high = max(a.high, end)
	if p.End && !a.ended {
		a.ended = true
		a.total.ends.Add(1)
	}
	switch {
	case p.Count == 0:
	case p.Sequence <= a.next:
		a.use(p, from, 0)
	default:
		return a.hold(from, p, payload)
	}
	return Good
}

// follow counts what a line left out, and what it had late.
func (a *Arbiter) follow(from int, p *Packet) {
	l, end := &a.lines[from], p.Sequence+p.Count
	switch {
	case a.isServer(from):
	case !l.began:
		l.began, l.next = true, end
	case p.Sequence >= l.next:
		l.missing.Add(p.Sequence - l.next)
		l.next = end
	default:
		l.late.Add(p.Count)
		l.next = max(l.next, end)
	}
}

// use makes a packet the one whose messages are given out. Those that were given out already do not count.
func (a *Arbiter) use(p Packet, from, buffer int) {
	for p.Count > 0 && p.Sequence < a.next {
		p.take()
		a.lines[from].repeats.Add(1)
	}
	a.current, a.line, a.buffer = p, from, buffer
}

// hold copies a packet behind a gap. If there is no room, the gap in front of the held packets is declared.
func (a *Arbiter) hold(from int, p Packet, payload []byte) Reason {
	if len(a.free) == 0 {
		a.dropRestart()
	}
	why := a.insert(&a.held, from, p, payload)
	if why == NoRoom {
		a.upTo = a.held[0].packet.Sequence
	}
	return why
}

// insert copies a packet to its place among others, unless one of them has its messages.
func (a *Arbiter) insert(to *[]held, from int, p Packet, payload []byte) Reason {
	all := *to
	at := len(all)
	for at > 0 && all[at-1].packet.Sequence > p.Sequence {
		at--
	}
	if at > 0 {
		if prior := &all[at-1].packet; prior.Sequence+prior.Count >= p.Sequence+p.Count {
			a.lines[from].repeats.Add(p.Count)
			return Good
		}
	}
	if len(a.free) == 0 {
		return NoRoom
	}
	buffer := a.free[len(a.free)-1]
	a.free = a.free[:len(a.free)-1]
	all = append(all, held{})
	copy(all[at+1:], all[at:])
	all[at] = held{a.copied(buffer, p, payload), from, buffer}
	*to = all
	return Good
}

// Next returns the next message, or false if it has not come yet. The message is valid until the next call of a
// method.
func (a *Arbiter) Next() ([]byte, bool) {
	for {
		switch {
		case a.current.Count > 0:
			m := a.current.take()
			a.next = a.current.Sequence
			a.lines[a.line].wins.Add(1)
			a.total.given.Add(1)
			return m, true
		case a.buffer != 0:
			a.free, a.buffer = append(a.free, a.buffer), 0
		case len(a.held) > 0:
			first := a.held[0]
			if at := first.packet.Sequence; at > a.next && at > a.upTo && !a.changing {
				return nil, false
			}
			a.lose(first.packet.Sequence)
			a.held = a.held[:copy(a.held, a.held[1:])]
			a.use(first.packet, first.line, first.buffer)
		case a.changing:
			a.lose(a.high)
			a.changing = false
			if a.restart.open {
				a.beginRestarted()
				continue
			}
			a.begin(a.pending.Session, a.pending.Sequence)
			a.sort(a.origin, a.pending, nil) // is never held: the session begins with it
			a.goOn()
		default:
			a.lose(a.upTo)
			return nil, false
		}
	}
}

// lose declares that messages before this one do not come any more.
func (a *Arbiter) lose(before uint64) {
	if before > a.next {
		a.total.lost.Add(before - a.next)
		a.total.gaps.Add(1)
		a.next = before
	}
}

// Keep copies the messages that were not given out yet, so that the payload of Receive may change.
func (a *Arbiter) Keep() {
	if a.current.Count == 0 || a.buffer != 0 {
		return
	}
	b := a.store[ofCurrent*a.config.Longest:][:len(a.current.blocks):len(a.current.blocks)]
	copy(b, a.current.blocks)
	a.current.blocks = b
}

// end returns where the gap in front of the next message that there is ends. If there is none, it is a.next.
func (a *Arbiter) end() uint64 {
	if len(a.held) > 0 {
		return a.held[0].packet.Sequence
	}
	return a.high
}

// Tick declares a gap that has been open for long enough. It returns the messages to ask the retransmission server
// for now; none if n is 0. now is the time of any clock that does not go back. Next has returned false before, and
// the caller calls it again afterwards.
func (a *Arbiter) Tick(now time.Duration) (first uint64, n uint16) {
	a.At(now)
	if a.restart.open && a.hasRestarted() {
		a.changing = true
		return 0, 0
	}
	switch end := a.end(); {
	case a.next >= end:
		a.open = false
	case !a.open || a.start != a.next:
		a.open, a.asked, a.start, a.since = true, false, a.next, now
	case now-a.since >= a.config.Gap:
		a.upTo = end
	case a.config.Ask > 0 && !a.asked && now-a.since >= a.config.Ask:
		a.asked = true
		a.total.asks.Add(1)
		return a.next, uint16(min(end-a.next, endOfSession-1))
	}
	return 0, 0
}

// Wait returns how long after now Tick has something to do; false: there is no gap, and no sender that may have begun
// again.
func (a *Arbiter) Wait(now time.Duration) (time.Duration, bool) {
	at := a.since + a.config.Gap
	if a.config.Ask > 0 && !a.asked {
		at = a.since + a.config.Ask
	}
	g, open := &a.restart, a.open
	if decides := g.since + a.config.Gap; g.open && len(g.held) > 1 {
		if !a.allBack() {
			decides = g.other + aloneTime
		}
		if !open || decides < at {
			at, open = decides, true
		}
	}
	return max(0, at-now), open
}

// Asked reports whether the retransmission server was asked for what is missing now.
func (a *Arbiter) Asked() bool { return a.open && a.asked }

// Finish declares all gaps: nothing more comes.
func (a *Arbiter) Finish() {
	a.upTo, a.finished = a.high, true
	a.finishRestart()
	a.refuseCandidate()
}

// Session returns the session for a request.
func (a *Arbiter) Session() Session { return a.session }
