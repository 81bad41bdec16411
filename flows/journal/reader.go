package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// never is a position that no record has.
const never = math.MaxUint64

// Reader reads the records of a log in order. It belongs to one goroutine.
type Reader struct {
	set     set
	next    uint64 // position of the next record to return; 0: not known yet
	given   uint64 // position of the last record returned; 0: none
	seeking bool   // nothing was returned yet, and earlier records are not wanted

	at      *segment // the current one; nil: none yet
	later   []piece  // the segments after it, or in its place, as last listed: see look
	void    uint64   // records from here on belong to a later run; never: there is none
	origins map[uint64]origin
	batch   pcapng.Batch
	found   []packet // packets of the current batch, not checked yet
	// counted is a packet of a segment, by its number there, and the position of its record: together
	// they give the positions of all others. If records before the segment are missing, too, their
	// number is not known, and the position is the smallest possible.
	counted       counted
	alone         bool          // no flow writes the log
	verified      verifiedBatch // the batch that was read twice: the first time its writer may have been writing it
	durableBefore uint64        // records before this position were durable when reading began
	planned       []Run         // runs of the manifest: the newest may have no segment yet
	before        uint64        // records from here on are not wanted; never: all are
	committed     uint64        // records before this position are committed, as last read; never: all records are returned
	lost          error         // why records before the next one that is found are certainly lost; nil: they may still come
}

// Next returns the next record. io.EOF: there is none yet; call again later. A *Gap or a *Cut says
// that records are missing or void; the next call continues after them. Any other error names the
// segment and is returned again.
func (r *Reader) Next() (Record, error) { return r.read(true) }

// Poll is Next for frequent calls. It returns io.EOF if only later segments could show whether a
// record is lost or not written yet.
func (r *Reader) Poll() (Record, error) { return r.read(false) }

// Position returns the position of the next record; 0: not known yet.
func (r *Reader) Position() uint64 { return r.next }

// Close closes the open segment. A closed Reader can be used again, and continues at the same
// position.
func (r *Reader) Close() error {
	if r.at == nil {
		return nil
	}
	at := r.at
	r.at, r.found = nil, nil
	r.seeking = r.next > 0
	return at.Close()
}

// read is Next. Without prove it accepts any possible end after a crash as the end of the log,
// which is cheaper.
func (r *Reader) read(prove bool) (Record, error) {
	if ok, err := r.reaches(); !ok {
		return Record{}, err
	}
	rec, err := r.find(prove)
	if err == io.EOF && prove {
		if g := r.broken(); g != nil {
			return rec, g
		}
	}
	return rec, err
}

// reaches reports whether the next record is committed. If not, the error is io.EOF.
func (r *Reader) reaches() (bool, error) {
	if r.committed > max(r.next, 1) {
		return true, nil
	}
	m, _, err := r.set.manifest()
	if err != nil {
		return false, fmt.Errorf("read which records of the group's log are committed: %w", err)
	}
	if err := r.learn(m.Runs); err != nil {
		return false, err
	}
	if r.committed = m.Committed + 1; r.committed > max(r.next, 1) {
		return true, nil
	}
	return false, io.EOF
}

// learn takes over the runs of the manifest that says what is committed. The segment that is being read
// may have records, at positions that are committed now, that the log's member cut off meanwhile.
func (r *Reader) learn(runs []Run) error {
	if slices.Equal(runs, r.planned) {
		return nil
	}
	if r.planned = runs; r.at == nil {
		return nil
	}
	return r.look()
}

// broken returns a Gap if the log ends before a record that was durable according to its manifest;
// else nil.
func (r *Reader) broken() *Gap {
	if r.durableBefore <= max(r.next, 1) {
		return nil
	}
	g := &Gap{Position: max(r.next, 1), Err: ErrMissing}
	g.Records = r.durableBefore - g.Position
	if r.at != nil {
		g.Segment, g.Offset = r.at.name, r.at.walk.Place()
	}
	r.next, r.seeking, r.lost = r.durableBefore, false, nil
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

// take returns the next record of those found. If ok is false and err is nil, none of them is the
// next record.
func (r *Reader) take(prove bool) (rec Record, ok bool, err error) {
	for len(r.found) > 0 && r.next < r.void {
		p := &r.found[0]
		rec, reason := p.read()
		if r.seeking && reason != protocol.None && rec.Position == 0 {
			if ok, err := r.place(p, &rec, prove); err != nil {
				return Record{}, false, err
			} else if !ok {
				r.found = r.found[1:]
				continue
			}
		}
		switch {
		case rec.Position > 0 && rec.Position < r.next:
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

// place finds the position of a damaged record, for a reader that seeks: one that is not whole yet because its writer is
// writing it may be the one that is wanted. If no other record of the segment tells the position, the reader begins again, until
// the record is certainly lost; then ok is false.
func (r *Reader) place(p *packet, rec *Record, prove bool) (ok bool, err error) {
	if c := r.counted; c.known && p.number >= c.number {
		rec.Position = c.position + (p.number - c.number)
		return true, nil
	}
	certain, err := r.certain(prove)
	if err != nil || certain || r.next >= r.void {
		return false, err
	}
	if err := r.Close(); err != nil {
		return false, err
	}
	return false, io.EOF
}

// miss handles a packet that is not the next record: it is damaged, or a later one. If it returns
// no error, a later run continues at this position.
func (r *Reader) miss(offset int64, rec *Record, reason protocol.Reason, prove bool) error {
	certain, err := r.certain(prove)
	sent := reason == protocol.BadPayload && !r.at.verified // the client may have sent a bad payload
	if (sent || r.seeking) && rec.Position > r.next {
		reason = protocol.None // the records before it are missing first
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

// verifiedBatch identifies a batch of a segment.
type verifiedBatch struct {
	in    *segment
	place int64 // offset after the batch
}

// certain reports whether the next record is lost, and not just late. It is neither if a later run has it.
func (r *Reader) certain(prove bool) (bool, error) {
	if r.lost != nil {
		return true, nil
	}
	if err := r.look(); err != nil || r.next >= r.void {
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

// durable reports whether the writer knew that the next record was durable. A later mark of this
// segment shows that, or a mark of a later segment, which is not flushed before this one.
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

// flushed reports whether a segment's marks say that a part of it was durable.
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

// The intervals at which Wait polls, and at which it checks whether a missing record is lost.
const (
	eager, lazy     = time.Millisecond, 100 * time.Millisecond
	proving, seldom = time.Second, time.Minute
)

// Wait is Next, but waits for a record until ctx ends. It then returns the error of ctx.
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

// counted is a packet of a segment: its number in the segment, and the position of its record. The
// positions of the other packets follow from it. If records before the segment are missing too,
// their number is not known, and position is the smallest possible one.
type counted struct {
	number, position uint64
	known            bool
}

// counts returns a packet whose position is known, for a segment that begins with the record next.
func (s *segment) counts(next uint64) counted {
	first := s.walk.Head().Segment.FirstPacket
	if s.numbered { // packets are numbered from the first of the run
		return counted{first, s.start, true}
	}
	return counted{first, next, next > 0}
}

// short returns a Gap if a segment was read to its end and has fewer records than its end marker
// says; otherwise nil.
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
	Payload []byte // valid until the next call
	Raw     []byte // header and payload, as they are in the log; valid until the next call
	Time    uint64 // of receipt, by the receiving system's clock: nanoseconds since 1970
	Segment string // the file, or which segment of a ring
	Offset  int64  // of its block in the segment
}

// Control reports whether a group has appended the record for itself: see [protocol.Control].
func (r *Record) Control() bool { return r.Session == 0 }

// packet is a record that is not checked yet.
type packet struct {
	data   []byte
	time   uint64
	offset int64
	number uint64 // in the segment
}

// packets appends the packets of a batch. They are valid as long as its bytes.
func packets(all []packet, b pcapng.Batch, data []byte) ([]packet, error) {
	number := b.FirstPacket
	err := pcapng.EachPacket(data, func(p pcapng.Packet) error {
		all = append(all, packet{p.Data, p.Time, int64(b.Offset) + p.Offset, number})
		number++
		return nil
	})
	return all, err
}

// read checks whether a record is intact. For one with a bad payload it returns the header.
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
	return Record{Data: d, Payload: payload, Raw: p.data, Time: p.time, Offset: p.offset}, protocol.None
}
