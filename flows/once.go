package flows

import (
	"time"

	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/counter"
)

// once has a log take each message of a session once, also where the session comes back after a restart or by a relay: after a restart a relay has a
// new session of its own, and its clients send again what it had not acknowledged. It belongs to the worker's thread, but for the counters.
type once struct {
	before     journal.Sessions // the newest sessions of the log on disk, and those that were forgotten since
	origins    map[uint64]*originState
	recent     [256]*originState // by the low bits of the session
	awaited    map[uint16]uint64 // by the session's number: the message that was refused, and comes again
	duplicates counter.Counter
	refused    counter.Counter
}

// originState is how far an origin's session has come.
type originState struct {
	session, last uint64
	owner         uint64 // of the relay's session: see protocol.OwnerOf
	used          int64
}

// mostOrigins is how many origins are remembered, and originTime how long at least after the last message of one.
const (
	mostOrigins = 1 << 16
	originTime  = time.Hour
)

// last is how far the log has taken a session.
func (c *once) last(session uint64) journal.Mark {
	if o := c.origins[session]; o != nil {
		return journal.Mark{Sequence: o.last, Owner: o.owner}
	}
	return c.before.Last(session)
}

// next is the sequence expected of a session that comes, whose owner it must be. One that is in the log without an owner, as before there was TLS, is
// anybody's.
func (c *once) next(session uint64, owner string) (uint64, error) {
	m := c.last(session)
	if m.Owner != 0 && m.Owner != protocol.OwnerOf(owner) {
		return 0, stream.ErrOwner
	}
	return m.Sequence + 1, nil
}

// forgotten notes how far a session has come that its receiver does not know any more.
func (c *once) forgotten(session uint64, owner string, acknowledged uint64) {
	if acknowledged > c.before.Last(session).Sequence {
		c.before.Note(session, journal.Mark{Sequence: acknowledged, Owner: protocol.OwnerOf(owner)})
	}
}

// leaveOut takes from the buffer, from first on, the messages of relays that the log has, and those that it must not take. Those behind one that
// was refused come again.
func (l *rdmaStorage) leaveOut(first int, now time.Time) {
	kept := first
	for _, f := range l.buf[first:l.count] {
		header, session := l.region.At(f.Addr, protocol.HeaderLen), l.region.Side(f).Queue
		o := protocol.OriginOf(header)
		if o.Session == 0 || l.fresh(o, session, protocol.SequenceOf(header), now) {
			l.buf[kept] = f
			kept++
		} else {
			l.spare.Push(f)
		}
	}
	l.count = kept
}

// fresh reports whether a message is to be recorded. One that the log has is acknowledged with what is in front of it.
func (l *rdmaStorage) fresh(origin protocol.Origin, session uint16, sequence uint64, now time.Time) bool {
	if n := l.once.awaited[session]; n != 0 && sequence != n && sequence != 1 {
		l.once.refused.Add(1)
		return false
	}
	o, reason := l.originOf(origin.Session, session, now)
	delete(l.once.awaited, session)
	switch {
	case reason != protocol.None:
		l.once.refused.Add(1)
		if l.once.awaited == nil {
			l.once.awaited = map[uint16]uint64{}
		}
		l.once.awaited[session] = sequence
		l.receiver.Reject(session, sequence, reason)
		return false
	case origin.Sequence <= o.last:
		l.once.duplicates.Add(1)
		l.skip(session, sequence)
		return false
	}
	o.last, o.used = origin.Sequence, now.UnixNano()
	return true
}

// originOf is the state of an origin, which belongs to the owner of the session that brought it first.
func (l *rdmaStorage) originOf(id uint64, session uint16, now time.Time) (*originState, protocol.Reason) {
	c := &l.once
	owner := l.receiver.OwnerID(session)
	o := c.recent[id%uint64(len(c.recent))]
	if o == nil || o.session != id {
		o = c.origins[id]
	}
	if o == nil {
		var reason protocol.Reason
		if o, reason = l.newOrigin(id, owner, now); reason != protocol.None {
			return nil, reason
		}
	}
	if o.owner != owner {
		return nil, protocol.NotPermitted
	}
	c.recent[id%uint64(len(c.recent))] = o
	return o, protocol.None
}

// newOrigin begins to remember an origin, in the place of one that was not used for long where there are many.
func (l *rdmaStorage) newOrigin(id, owner uint64, now time.Time) (*originState, protocol.Reason) {
	c := &l.once
	before := c.before.Last(id)
	if by, taken, direct := l.receiver.Session(id); direct {
		before.Owner, before.Sequence = protocol.OwnerOf(by), max(taken, before.Sequence)
		if before.Owner != owner {
			return nil, protocol.NotPermitted
		}
	}
	if before.Owner != 0 && before.Owner != owner {
		return nil, protocol.NotPermitted
	}
	if len(c.origins) >= mostOrigins && !c.forget(now.Add(-originTime).UnixNano()) {
		return nil, protocol.Busy
	}
	if c.origins == nil {
		c.origins = map[uint64]*originState{}
	}
	o := &originState{session: id, owner: owner, last: before.Sequence, used: now.UnixNano()}
	c.origins[id] = o
	return o, protocol.None
}

// forget makes room: origins that were not used since a time go to what the log has of sessions. It reports whether there was one.
func (c *once) forget(since int64) (any bool) {
	for id, o := range c.origins {
		if o.used < since {
			c.before.Note(id, journal.Mark{Sequence: o.last, Owner: o.owner})
			delete(c.origins, id)
			any = true
		}
	}
	clear(c.recent[:])
	return any
}
