package journal

import (
	"context"
	"errors"
	"io"
	"math"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// never is a position that no record has.
const never = math.MaxUint64

// Reader gives the records of a log in order. It belongs to one goroutine.
type Reader struct {
	set     set
	next    uint64 // position of the record to be given next; 0: not known yet
	given   uint64 // position of the record that was given last; 0: none
	seeking bool   // nothing was given yet, and what lies in front of next does not matter

	at       *segment // being read; nil: none yet
	later    []piece  // behind it, as last seen
	void     uint64   // records from here on are a later run's; never: there is none
	origins  map[uint64]origin
	batch    pcapng.Batch
	found    []packet // of the batch, not looked at yet
	counted  counted
	alone    bool          // nobody writes the log
	verified verifiedBatch // the batch that was read twice, since the first time its writer may have been at it
	promised uint64        // records in front of this position were durable when reading began
	lost     error         // why records in front of the next one that is found are lost for certain; nil: they may still come
}

// Next is the next record. io.EOF: there is none, or not yet; ask again later. A *Gap or a *Cut says what is not as it
// was; reading goes on behind it. Any other error names the segment and comes again.
func (r *Reader) Next() (Record, error) { return r.read(true) }

// Poll is Next for who asks often: where what follows would have to be looked through to know whether something was lost or has
// not come yet, it takes it for the latter.
func (r *Reader) Poll() (Record, error) { return r.read(false) }

// Position is that of the record that is next; 0: not known yet.
func (r *Reader) Position() uint64 { return r.next }

// Close gives back what is open. A Reader that was closed begins anew where it was.
func (r *Reader) Close() error {
	if r.at == nil {
		return nil
	}
	at := r.at
	r.at, r.found = nil, nil
	r.seeking = r.next > 0
	return at.Close()
}

// read is Next; without prove, what could be a crash's end of the log is taken for it, which is cheaper.
func (r *Reader) read(prove bool) (Record, error) {
	rec, err := r.find(prove)
	if err == io.EOF && prove {
		if g := r.broken(); g != nil {
			return rec, g
		}
	}
	return rec, err
}

// broken is a Gap where the log ends in front of what its manifest says was durable; nil: it does not.
func (r *Reader) broken() *Gap {
	if r.promised <= max(r.next, 1) {
		return nil
	}
	g := &Gap{Position: max(r.next, 1), Err: ErrMissing}
	g.Records = r.promised - g.Position
	if r.at != nil {
		g.Segment, g.Offset = r.at.name, r.at.walk.Place()
	}
	r.next, r.seeking, r.lost = r.promised, false, nil
	return g
}

func (r *Reader) find(prove bool) (Record, error) {
	for {
		if r.at == nil {
			if err := r.begin(); err != nil {
				return Record{}, err
			}
		}
		if r.next >= r.void {
			if err := r.toNextRun(); err != nil {
				return Record{}, err
			}
			continue
		}
		rec, ok, err := r.take(prove)
		if ok || err != nil {
			return rec, err
		}
		if err := r.load(prove); err != nil {
			return Record{}, err
		}
	}
}

// take gives the next record of those found. Without ok and error, there is none among them.
func (r *Reader) take(prove bool) (rec Record, ok bool, err error) {
	for len(r.found) > 0 && r.next < r.void {
		p := &r.found[0]
		rec, reason := p.read()
		switch {
		case reason != protocol.None && r.seeking, rec.Position > 0 && rec.Position < r.next:
			r.found = r.found[1:]
			continue
		case reason == protocol.None && rec.Position == r.next:
			r.found = r.found[1:]
			r.given = r.next
			r.counted = counted{p.number, r.next, true}
			r.next, r.seeking, r.lost = r.next+1, false, nil
			rec.Segment = r.at.name
			return rec, true, nil
		}
		if err := r.miss(p.offset, &rec, reason, prove); err != nil {
			return Record{}, false, err
		}
	}
	return Record{}, false, nil
}

// miss deals with a packet that is not the record that is next: it is damaged, or one further on. Without an error, a later run
// goes on in its place.
func (r *Reader) miss(offset int64, rec *Record, reason protocol.Reason, prove bool) error {
	certain, err := r.certain(prove)
	sent := reason == protocol.BadPayload && !r.at.verified // its client may have sent it so
	if sent && rec.Position > r.next {
		reason = protocol.None // those in front of it come first
	} else if sent && prove && err == nil && !certain && rec.Position == r.next {
		certain = r.alone || r.at.idle != nil && r.at.idle()
	}
	if err != nil || r.next >= r.void {
		return err
	}
	if !certain {
		r.at.walk.Again()
		r.found = nil
		return io.EOF
	}
	if now := (verifiedBatch{r.at, r.at.walk.Place()}); r.verified != now {
		r.verified = now
		r.at.walk.Again()
		r.found = nil
		return nil
	}
	g := &Gap{Position: r.next, Records: 1, Segment: r.at.name, Offset: offset, Err: reason}
	if reason == protocol.None {
		g.Records, g.Err = rec.Position-r.next, r.lost
	} else {
		if sent {
			g.Session, g.Sequence, g.Owner = rec.Session, rec.Sequence, rec.Owner
		}
		r.found = r.found[1:]
	}
	r.next, r.seeking, r.lost = r.next+g.Records, false, nil
	return g
}

// verifiedBatch is a batch of a segment.
type verifiedBatch struct {
	in    *segment
	place int64 // behind it
}

// certain reports whether what should be next is lost, and will not come.
func (r *Reader) certain(prove bool) (bool, error) {
	if r.lost != nil {
		return true, nil
	}
	if err := r.look(); err != nil {
		return false, err
	}
	lost := r.void != never
	if !lost && prove {
		var err error
		if lost, err = r.durable(); err != nil {
			return false, err
		}
	}
	if lost {
		r.lost = ErrMissing
	}
	return lost, nil
}

// durable reports whether the writer knew what should be next to be on stable storage: a mark behind it says so, or one of a
// later segment, which is not flushed before this one is.
func (r *Reader) durable() (known bool, err error) {
	place := r.at.walk.Place()
	if len(r.found) > 0 {
		place = r.at.walk.Before()
		known = r.batch.Durable > uint64(place)
	}
	if !known {
		known, err = r.at.walk.Durable(place)
	}
	for _, p := range r.later {
		if known || err != nil {
			break
		}
		known, err = r.flushed(p)
	}
	return known, r.about(err)
}

// flushed reports whether a segment says that something of it was durable.
func (r *Reader) flushed(p piece) (bool, error) {
	s, err := r.set.open(p)
	if errors.Is(err, errAbsent) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	known, err := s.walk.Durable(0)
	return known, errors.Join(err, s.Close())
}

// How often Wait looks for a record, and how often it finds out at length whether what is missing is lost.
const (
	eager, lazy     = time.Millisecond, 100 * time.Millisecond
	proving, seldom = time.Second, time.Minute
)

// Wait is Next, but waits for the record until the context ends, whose error it returns then.
func (r *Reader) Wait(ctx context.Context) (Record, error) {
	idle, every, since := eager, proving, time.Now()
	for {
		prove := time.Since(since) >= every
		if prove {
			every, since = min(2*every, seldom), time.Now()
		}
		rec, err := r.read(prove)
		if err != io.EOF {
			return rec, err
		}
		select {
		case <-ctx.Done():
			return Record{}, context.Cause(ctx)
		case <-time.After(idle):
		}
		idle = min(2*idle, lazy)
	}
}

// counted is a packet of a segment, by its number there, and the position of its record: those of the others follow. Where records in
// front of the segment are missing too, nobody knows how many, and the position is the least that it can be.
type counted struct {
	number, position uint64
	known            bool
}

// counts is what is known of a segment that is entered with a record that is next.
func (s *segment) counts(next uint64) counted {
	first := s.walk.Head().Segment.FirstPacket
	if s.numbered { // packets are counted from the first of the run
		return counted{first, s.start, true}
	}
	return counted{first, next, next > 0}
}

// short is a Gap where a segment, of which everything was read, has fewer records than its writer put there, as the mark tells that
// completed it; nil: it does not.
func (r *Reader) short() *Gap {
	c := r.counted
	completed, place := r.at.walk.Completed()
	if !c.known || completed <= c.number || r.at.walk.Place() < place {
		return nil
	}
	end := min(c.position+(completed-c.number), r.void)
	if end <= r.next {
		return nil
	}
	g := &Gap{Position: r.next, Records: end - r.next, Segment: r.at.name, Offset: r.at.walk.Place(), Err: ErrMissing}
	r.next, r.seeking, r.lost = end, false, nil
	return g
}

// Record is one message of the log.
type Record struct {
	protocol.Data
	Payload []byte // dies with the next call
	Time    uint64 // when it was taken, by the clock of the system that did: nanoseconds since 1970
	Segment string // the file, or which segment of a ring
	Offset  int64  // of its block in the segment
}

// packet is a record that was not looked at yet.
type packet struct {
	data   []byte
	time   uint64
	offset int64
	number uint64 // as the segment counts its packets
}

// packets appends those of a batch. They live as long as its bytes.
func packets(all []packet, b pcapng.Batch, data []byte) ([]packet, error) {
	number := b.FirstPacket
	err := pcapng.EachPacket(data, func(p pcapng.Packet) error {
		all = append(all, packet{p.Data, p.Time, int64(b.Offset) + p.Offset, number})
		number++
		return nil
	})
	return all, err
}

// read looks whether a record is intact. Of one with a bad payload it says what is in the header.
func (p *packet) read() (Record, protocol.Reason) {
	d, r := protocol.ParseRecord(p.data)
	if r != protocol.None {
		return Record{}, r
	}
	payload := p.data[protocol.HeaderLen:]
	switch {
	case d.Position == 0, d.Position == never:
		return Record{}, protocol.BadReserved
	case protocol.Checksum(payload) != d.Checksum:
		return Record{Data: d}, protocol.BadPayload
	}
	return Record{Data: d, Payload: payload, Time: p.time, Offset: p.offset}, protocol.None
}
