package feed

import (
	"encoding/binary"
	"math"
	"strconv"
)

// Counter is where packets of a plain feed have their number, which counts packets and begins again when it cannot
// become larger. Each packet is one message: its whole payload.
//
// Such packets do not name a session. A number within the window around the next one belongs to the session; it is
// late, a copy, or behind a gap. A packet with another number is kept. If the next one of this sort is within a window
// around the kept one, the sender has restarted, and a new session begins with these two (RFC 3550, A.1, has the same
// rule for RTP). Else the kept packet counts as TooFar. Whether a sender has restarted within the window is decided as
// with MoldUDP64: see restart.
type Counter struct {
	Offset int  // of the number's first byte in the payload
	Width  int  // bytes of the number: 2, 4 or 8
	Little bool // the number is little-endian; else it is big-endian
}

const (
	narrowWindow = 1 << 14 // with two bytes
	window       = 1 << 20
	base         = 1 << 40 // is added to numbers of up to four bytes, so that what is late is not below 0
	maxAge       = 64      // packets of the session after which a kept packet is not the first of a new one
)

func (c *Counter) valid() bool {
	return c.Offset >= 0 && c.Offset < math.MaxUint16 && (c.Width == 2 || c.Width == 4 || c.Width == 8)
}

func (c *Counter) window() int64 {
	if c.Width == 2 {
		return narrowWindow
	}
	return window
}

// number returns the number of a packet; false: the packet ends before its end.
func (c *Counter) number(p []byte) (uint64, bool) {
	if len(p) < c.Offset+c.Width {
		return 0, false
	}
	var order binary.ByteOrder = binary.BigEndian
	if c.Little {
		order = binary.LittleEndian
	}
	switch p = p[c.Offset:]; c.Width {
	case 2:
		return uint64(order.Uint16(p)), true
	case 4:
		return uint64(order.Uint32(p)), true
	}
	return order.Uint64(p), true
}

// first is the sequence number of a session's first packet. Its lowest bits are the packet's number.
func (c *Counter) first(number uint64) uint64 {
	if c.Width < 8 {
		return base + number
	}
	return number
}

// distance returns how far a number is beyond another one, of numbers that begin again.
func (c *Counter) distance(number, from uint64) int64 {
	shift := 64 - 8*c.Width
	return int64((number-from)<<shift) >> shift
}

// plain is the state of a feed of plain packets.
type plain struct {
	session     uint64 // its number, from 1 on
	first, last uint64 // the first sequence number of this session, and the next one of the session before

	kept   bool   // ofSession has the first packet of what may be a new session
	number uint64 // of that
	from   int    // the line where it came from
	length int
	age    int // packets of the session since then

	follows bool // another packet of the new session waits
	second  Packet
	line    int // where that came from
}

// plainPacket makes a packet of a payload.
func plainPacket(s Session, sequence uint64, payload []byte) Packet {
	return Packet{Session: s, Sequence: sequence, Count: 1, blocks: payload[:len(payload):len(payload)], whole: true}
}

// count sorts a plain packet by its number.
func (a *Arbiter) count(from int, payload []byte) Reason {
	c := a.config.Counter
	n, ok := c.number(payload)
	switch {
	case !ok:
		return Short
	case n == math.MaxUint64:
		return Wraps
	case !a.started:
		a.begin(a.nextSession(), c.first(n))
		return a.sort(from, plainPacket(a.session, a.next, payload), payload)
	}
	d, most := c.distance(n, a.next), c.window()
	switch {
	case near(d, most):
		a.ageCandidate()
		return a.sort(from, plainPacket(a.session, a.next+uint64(d), payload), payload)
	case a.older && a.next-a.plain.first < uint64(most) && near(c.distance(n, a.plain.last), most):
		p := plainPacket(a.before, a.plain.last+uint64(c.distance(n, a.plain.last)), payload)
		if a.goesBack(from, &p, true) {
			return a.keepForRestart(from, p, payload, true)
		}
		return OldSession
	}
	return a.elsewhere(from, n, payload)
}

func near(d, most int64) bool { return d >= -most && d <= most }

// nextSession returns the name of the next session: its number.
func (a *Arbiter) nextSession() (s Session) {
	a.plain.session++
	var digits [20]byte
	n := copy(s[:], strconv.AppendUint(digits[:0], a.plain.session, 10))
	for i := range s[n:] {
		s[n+i] = ' '
	}
	return s
}

// elsewhere takes a packet whose number does not belong to the session.
func (a *Arbiter) elsewhere(from int, n uint64, payload []byte) Reason {
	k, c := &a.plain, a.config.Counter
	if k.kept {
		switch d := c.distance(n, k.number); {
		case d == 0:
			a.lines[from].repeats.Add(1)
			return Good
		case near(d, c.window()):
			a.restartElsewhere(from, n, d, payload)
			return Good
		}
		a.refuseCandidate()
	}
	k.kept, k.number, k.from, k.length, k.age = true, n, from, len(payload), 0
	copy(a.store[ofSession*a.config.Longest:], payload)
	return Good
}

// restartElsewhere begins a new session with the kept packet and another one, which is so far behind it.
func (a *Arbiter) restartElsewhere(from int, n uint64, behind int64, payload []byte) {
	a.dropRestart()
	k, name := &a.plain, a.nextSession()
	first, second := a.config.Counter.first(k.number), uint64(behind)
	kept := plainPacket(name, 0, a.store[ofSession*a.config.Longest:][:k.length])
	other := a.copied(ofSecond, plainPacket(name, 0, payload), payload)
	if behind > 0 {
		a.pending, a.origin, k.second, k.line = kept, k.from, other, from
	} else {
		first, second = a.config.Counter.first(n), uint64(-behind)
		a.pending, a.origin, k.second, k.line = other, from, kept, k.from
	}
	a.pending.Sequence, k.second.Sequence = first, first+second
	a.changing, k.follows, k.kept = true, true, false
	a.total.restarts.Add(1)
}

// goOn sorts the second packet of a new session, behind the first one.
func (a *Arbiter) goOn() {
	if k := &a.plain; k.follows {
		k.follows = false
		if why := a.sort(k.line, k.second, k.second.blocks); why != Good {
			a.lines[k.line].refused[why].Add(1)
		}
	}
}

// ageCandidate counts a packet of the session. After many of them, the kept packet was damaged.
func (a *Arbiter) ageCandidate() {
	if a.plain.kept {
		if a.plain.age++; a.plain.age > maxAge {
			a.refuseCandidate()
		}
	}
}

// refuseCandidate drops the kept packet.
func (a *Arbiter) refuseCandidate() {
	if a.plain.kept {
		a.plain.kept = false
		a.lines[a.plain.from].refused[TooFar].Add(1)
	}
}
