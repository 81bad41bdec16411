package message

import (
	"time"

	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/counter"
)

// dedup makes a log take each message of a session once. The session may come back after a restart,
// or through a relay. A relay has a new session after a restart, and its clients resend messages
// that the relay had not acknowledged. dedup belongs to the worker's thread; any goroutine may read
// the counters.
type dedup struct {
	earlier    journal.Sessions // newest sessions of the log on disk, and those and origins that were forgotten since
	origins    map[uint64]*origin
	recent     [256]*origin      // cache, by the low bits of the session
	expected   map[uint16]uint64 // by session number: the refused message, which the client resends
	duplicates counter.Counter
	refused    counter.Counter
}

// origin is the progress of a session of a relay's client.
type origin struct {
	session, last uint64
	owner         uint64 // of the relay's session: see protocol.OwnerOf
	used          int64  // nanoseconds since 1970
}

const (
	// maxOrigins is the largest number of origins in memory.
	maxOrigins = 1 << 16
	// originTime is the least time that an origin stays in memory after its last message.
	originTime = time.Hour
)

// last returns the last message of a session that the log has.
func (d *dedup) last(session uint64) journal.Mark {
	if o := d.origins[session]; o != nil {
		return journal.Mark{Sequence: o.last, Owner: o.owner}
	}
	return d.earlier.Last(session)
}

// next returns the sequence that is expected of a session that comes back. The session must have
// the same owner as before. If the log has no owner for it, because it is from before TLS was
// configured, any owner may continue it.
func (d *dedup) next(session uint64, owner string) (uint64, error) {
	m := d.last(session)
	if m.Owner != 0 && m.Owner != protocol.OwnerOf(owner) {
		return 0, stream.ErrOwner
	}
	return m.Sequence + 1, nil
}

// forgotten records the progress of a session that the receiver forgets.
func (d *dedup) forgotten(session uint64, owner string, acknowledged uint64) {
	if acknowledged > d.earlier.Last(session).Sequence {
		d.earlier.Note(session, journal.Mark{Sequence: acknowledged, Owner: protocol.OwnerOf(owner)})
	}
}

// removeDuplicates removes messages of relays from the batch, starting at first: those that the log
// has, and those that it refuses. The client resends the messages after a refused one.
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

// isNew reports whether the log must take a message. A message that the log has is acknowledged
// after the messages before it.
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

// originOf returns the state of an origin. An origin belongs to the owner of the session that first
// delivered one of its messages.
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

// newOrigin adds an origin. If the table is full, it removes origins that were not used for
// originTime.
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

// forget moves origins that were not used since a time to the sessions of the log. It reports
// whether it moved any.
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
