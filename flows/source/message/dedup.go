package message

import (
	"time"

	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/counter"
)

// dedup has a log take each message of a session once, also when the session comes back after a
// restart, or by a relay: after a restart a relay has a new session, and its clients send again what
// it had not acknowledged. It belongs to the worker's thread; any goroutine may read the counters.
type dedup struct {
	earlier    journal.Sessions // newest sessions of the log on disk, and those that were forgotten since
	origins    map[uint64]*origin
	recent     [256]*origin      // cache, by the low bits of the session
	expected   map[uint16]uint64 // by session number: the refused message, which comes again
	duplicates counter.Counter
	refused    counter.Counter
}

// origin is how far the session of a relay's client has come.
type origin struct {
	session, last uint64
	owner         uint64 // of the relay's session: see protocol.OwnerOf
	used          int64  // nanoseconds since 1970
}

const (
	// maxOrigins is how many origins are remembered.
	maxOrigins = 1 << 16
	// originTime is how long an origin is remembered at least after its last message.
	originTime = time.Hour
)

// last is the last message of a session that the log has.
func (d *dedup) last(session uint64) journal.Mark {
	if o := d.origins[session]; o != nil {
		return journal.Mark{Sequence: o.last, Owner: o.owner}
	}
	return d.earlier.Last(session)
}

// next is the sequence expected of a session that comes back. It must have the owner it had. A
// session that is in the log without an owner, from before there was TLS, is anybody's.
func (d *dedup) next(session uint64, owner string) (uint64, error) {
	m := d.last(session)
	if m.Owner != 0 && m.Owner != protocol.OwnerOf(owner) {
		return 0, stream.ErrOwner
	}
	return m.Sequence + 1, nil
}

// forgotten notes how far a session has come that the receiver forgets.
func (d *dedup) forgotten(session uint64, owner string, acknowledged uint64) {
	if acknowledged > d.earlier.Last(session).Sequence {
		d.earlier.Note(session, journal.Mark{Sequence: acknowledged, Owner: protocol.OwnerOf(owner)})
	}
}

// removeDuplicates removes from the batch, from first on, the messages of relays that the log has
// and those that it must refuse. The client sends those behind a refused one again.
func (s *Source) removeDuplicates(first int, now time.Time) {
	b, kept := &s.batch, first
	for _, f := range b.Frames[first:b.Len] {
		header, session := s.region.At(f.Addr, protocol.HeaderLen), s.region.Side(f).Queue
		o := protocol.OriginOf(header)
		if o.Session == 0 || s.isNew(o, session, protocol.SequenceOf(header), now) {
			b.Frames[kept] = f
			kept++
		} else {
			s.free.Push(f)
		}
	}
	b.Len = kept
}

// isNew reports whether the log has to take a message. One that it has is acknowledged after the
// messages before it.
func (s *Source) isNew(from protocol.Origin, session uint16, sequence uint64, now time.Time) bool {
	d := s.dedup
	if n := d.expected[session]; n != 0 && sequence != n && sequence != 1 {
		d.refused.Add(1)
		return false
	}
	o, reason := s.originOf(from.Session, session, now)
	delete(d.expected, session)
	switch {
	case reason != protocol.None:
		d.refused.Add(1)
		if d.expected == nil {
			d.expected = map[uint16]uint64{}
		}
		d.expected[session] = sequence
		s.receiver.Reject(session, sequence, reason)
		return false
	case from.Sequence <= o.last:
		d.duplicates.Add(1)
		s.acks.skip(session, sequence)
		return false
	}
	o.last, o.used = from.Sequence, now.UnixNano()
	return true
}

// originOf returns the state of an origin. It belongs to the owner of the session that brought it
// first.
func (s *Source) originOf(id uint64, session uint16, now time.Time) (*origin, protocol.Reason) {
	d := s.dedup
	owner := s.receiver.OwnerID(session)
	o := d.recent[id%uint64(len(d.recent))]
	if o == nil || o.session != id {
		o = d.origins[id]
	}
	if o == nil {
		var reason protocol.Reason
		if o, reason = s.newOrigin(id, owner, now); reason != protocol.None {
			return nil, reason
		}
	}
	if o.owner != owner {
		return nil, protocol.NotPermitted
	}
	d.recent[id%uint64(len(d.recent))] = o
	return o, protocol.None
}

// newOrigin begins to remember an origin. If there are too many it forgets those that were not used
// for long.
func (s *Source) newOrigin(id, owner uint64, now time.Time) (*origin, protocol.Reason) {
	d := s.dedup
	before := d.earlier.Last(id)
	if by, received, direct := s.receiver.Session(id); direct {
		before.Owner, before.Sequence = protocol.OwnerOf(by), max(received, before.Sequence)
		if before.Owner != owner {
			return nil, protocol.NotPermitted
		}
	}
	if before.Owner != 0 && before.Owner != owner {
		return nil, protocol.NotPermitted
	}
	if len(d.origins) >= maxOrigins && !d.forget(now.Add(-originTime).UnixNano()) {
		return nil, protocol.Busy
	}
	if d.origins == nil {
		d.origins = map[uint64]*origin{}
	}
	o := &origin{session: id, owner: owner, last: before.Sequence, used: now.UnixNano()}
	d.origins[id] = o
	return o, protocol.None
}

// forget moves origins that were not used since a time to the sessions of the log, and reports
// whether there was one.
func (d *dedup) forget(since int64) (any bool) {
	for id, o := range d.origins {
		if o.used < since {
			d.earlier.Note(id, journal.Mark{Sequence: o.last, Owner: o.owner})
			delete(d.origins, id)
			any = true
		}
	}
	clear(d.recent[:])
	return any
}
