package journal

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/ring"
)

// Repair lists what is wrong with a log, and is the plan to repair it.
type Repair struct {
	Damage   []*Damage
	Heads    []Rebuilt // heads to rebuild
	GivenUp  []*Damage // segments that cannot be recovered
	Manifest bool      // the manifest must be rewritten
	Copies   int       // damaged copies of an otherwise intact manifest
	Lost     uint64    // records that are missing afterwards
	Gaps     []*Gap    // the first 1000
	Next     uint64    // position at which the log continues
	// Unsure says that no manifest shows whether newer segments are missing.
	Unsure bool

	log *Log
	now Manifest
}

// Rebuilt is a segment whose head is rebuilt.
type Rebuilt struct {
	Segment uint64
	Name    string
	First   uint64 // position of its first intact record

	piece piece
}

// Needed reports whether there is something to repair.
func (r *Repair) Needed() bool { return len(r.Damage) > 0 || r.Copies > 0 }

// PlanRepair plans the repair of a log that no flow writes. It changes nothing. The caller closes
// the plan.
func PlanRepair(path string) (r *Repair, err error) {
	l, err := Open(path)
	if err != nil {
		return nil, err
	}
	r = &Repair{log: l}
	if err = r.plan(); err != nil {
		return nil, errors.Join(fmt.Errorf("repair log %s: %w", path, err), l.Close())
	}
	return r, nil
}

// Close ends the plan.
func (r *Repair) Close() error { return r.log.Close() }

func (r *Repair) plan() error {
	if _, single := r.log.set.(*one); single {
		return errors.New("it is one file: name what the names of all its files begin with")
	}
	m, damage, err := r.log.check()
	if err != nil {
		return err
	}
	if m != nil {
		_, r.Copies, err = r.log.set.manifest()
	}
	r.Damage, r.Manifest, r.Unsure = damage, len(damage) > 0, m == nil
	if len(damage) == 0 || err != nil {
		return err
	}
	over := &overlay{set: r.log.set, heads: map[uint64]piece{}, gone: map[uint64]bool{}}
	if m != nil {
		r.now = *m
	}
	if err := r.each(over, m); err != nil {
		return err
	}
	return r.settle(over, m)
}

// each tries to recover each damaged segment.
func (r *Repair) each(over *overlay, m *Manifest) error {
	like, err := r.samples()
	if err != nil {
		return err
	}
	for _, d := range r.Damage {
		if d.First == 0 {
			continue
		}
		var made *Rebuilt
		if !errors.Is(d.Err, errMissing) {
			if made, err = r.rebuild(over, d, m, like); err != nil {
				return err
			}
		}
		if made != nil {
			r.Heads = append(r.Heads, *made)
			over.heads[made.Segment] = made.piece
			continue
		}
		r.GivenUp = append(r.GivenUp, d)
		for n := d.First; n <= d.Last && d.Last-d.First < 1<<20; n++ {
			over.gone[n] = true
		}
	}
	return nil
}

// settle finds the end of the repaired log, and the contents of its manifest.
func (r *Repair) settle(over *overlay, m *Manifest) (err error) {
	l := &Log{path: r.log.path, set: over}
	if m == nil {
		if r.now, err = resume(over, End{Next: 1}, never); err != nil {
			return err
		}
	}
	last, err := l.lastWithRecords()
	if err != nil {
		return err
	}
	l.durable = r.now.Next
	behind := uint64(0)
	for _, d := range r.GivenUp {
		if d.Last > last {
			behind += d.Last - max(d.First, last+1) + 1
		}
		r.now.giveUp(d.First, d.Last)
		r.now.Newest = max(r.now.Newest, d.Last)
	}
	switch {
	case behind > 0 && m != nil: // the lost records may have had any position that was ever assigned
		l.durable = r.now.Reserved
	case behind > 0:
		if l.durable, err = l.beyond(behind); err != nil {
			return err
		}
	}
	for _, made := range r.Heads { // the segment is in use and not in the manifest yet
		if made.Segment > r.now.Newest {
			s, err := over.open(made.piece)
			if err != nil {
				return err
			}
			r.now.Begin(made.Segment, Run{Number: s.run, Start: s.start})
			if err := s.Close(); err != nil {
				return err
			}
		}
	}
	report := Report{}
	if err := l.walk(&report); err != nil {
		return err
	}
	if g := r.front(m, report.First); g != nil {
		report.Lost, report.Gaps = report.Lost+g.Records, append([]*Gap{g}, report.Gaps...)
	}
	r.Lost, r.Gaps, r.Next = report.Lost, report.Gaps, max(report.Next, l.durable)
	r.now.Next = max(r.now.Next, l.durable)
	r.now.Reserved = max(r.now.Reserved, r.Next)
	if m == nil {
		r.now.Next, r.now.Reserved = r.Next, r.Next
	}
	return nil
}

// front returns a Gap for the records before the first one that may have been in lost segments.
func (r *Repair) front(m *Manifest, first uint64) *Gap {
	least := first
	for _, d := range r.GivenUp {
		start := uint64(1)
		if m != nil {
			if run, ok := m.runOf(d.First); ok {
				start = run.Start
			}
		}
		least = min(least, start)
	}
	if least >= first {
		return nil
	}
	return &Gap{Position: least, Records: first - least, Err: ErrMissing}
}

// leastRecord is the least length of a record in a segment in bytes.
const leastRecord = pcapng.PacketHeaderLen + protocol.HeaderLen + 4

// beyond returns a position after every record that a number of unknown segments can have.
func (l *Log) beyond(segments uint64) (uint64, error) {
	report := Report{}
	if err := l.walk(&report); err != nil {
		return 0, err
	}
	all, err := l.set.list(0)
	if err != nil {
		return 0, err
	}
	size := int64(64 << 20)
	for _, p := range all {
		_, n, end, err := l.set.bytes(p)
		if err != nil {
			return 0, err
		}
		size = max(size, n)
		if err := end(); err != nil {
			return 0, err
		}
	}
	return report.Next + segments*uint64(size)/leastRecord, nil
}

// lastWithRecords returns the number of the newest segment with an intact record; 0: there is none.
func (l *Log) lastWithRecords() (uint64, error) {
	all, err := l.set.list(0)
	if err != nil {
		return 0, err
	}
	for i := len(all) - 1; i >= 0; i-- {
		s, err := l.set.open(all[i])
		if errors.Is(err, errAbsent) {
			continue
		}
		if err != nil {
			return 0, err
		}
		position, err := s.begins()
		if err = errors.Join(err, s.Close()); err != nil {
			return 0, err
		}
		if position > 0 {
			return all[i].number, nil
		}
	}
	return 0, nil
}

// sample is an intact head of a run.
type sample struct {
	segment uint64
	run     Run
	raw     []byte
	head    pcapng.Head
}

// samples returns the intact heads, in the order of their segments.
func (r *Repair) samples() (all []sample, err error) {
	list, err := r.log.set.list(0)
	if err != nil {
		return nil, err
	}
	for _, p := range list {
		if slices.ContainsFunc(r.Damage, func(d *Damage) bool { return p.number >= d.First && p.number <= d.Last }) {
			continue
		}
		s, err := r.log.set.open(p)
		if errors.Is(err, errAbsent) {
			continue
		}
		if err != nil {
			return nil, err
		}
		one := sample{segment: p.number, run: Run{Number: s.run, Start: s.start}, head: *s.walk.Head()}
		one.raw = make([]byte, one.head.Len)
		_, err = s.raw.ReadAt(one.raw, 0)
		if err = errors.Join(err, s.Close()); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// rebuild rebuilds the head of a segment; nil: it has no batch with an intact record.
func (r *Repair) rebuild(over *overlay, d *Damage, m *Manifest, like []sample) (*Rebuilt, error) {
	p, err := over.find(d.First)
	if err != nil {
		return nil, err
	}
	raw, size, end, err := over.bytes(p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer end()
	var mark pcapng.Batch
	err = pcapng.EachMark(raw, size, func(b pcapng.Batch) bool {
		if _, on := r.ring(); on && b.Segment != r.segmentID(d.First) {
			return true // from an earlier use of the slot
		}
		mark = b
		return false
	})
	if err != nil || mark.Length == 0 {
		return nil, err
	}
	for _, head := range r.candidates(d.First, mark, m, like, raw) {
		p.head = head
		s, err := over.set.open(p)
		if errors.Is(err, errAbsent) || errors.Is(err, errNotLog) {
			continue
		}
		if err != nil {
			return nil, err
		}
		first, err := s.begins()
		if err = errors.Join(err, s.Close()); err != nil {
			return nil, err
		}
		if first > 0 {
			return &Rebuilt{d.First, d.Name, first, p}, nil
		}
	}
	return nil, nil
}

// candidates returns heads that a segment may have had, the most likely first.
func (r *Repair) candidates(segment uint64, mark pcapng.Batch, m *Manifest, like []sample, raw io.ReaderAt) (all [][]byte) {
	runs, begin := r.runsOf(segment, m, like, raw)
	for _, run := range runs {
		seg := pcapng.Segment{ID: mark.Segment, Align: mark.Align}
		if _, on := r.ring(); on {
			seg.FirstPacket = ring.Base(run.Segment)
		}
		length := int64(mark.Offset)
		source := Source("", run.Start, run.Number, 0)
		if said, ok := originIn(raw); ok {
			source = said.form.of(source, run.Start, run.Number)
		}
		for _, s := range like {
			if s.run.Number == run.Number && s.head.Segment.Align == mark.Align && s.head.Len <= length {
				seg.FirstPacket, length = s.head.Segment.FirstPacket, s.head.Len
				if head := pcapng.Rehead(s.raw, seg, length); head != nil {
					all = append(all, head)
				}
				break
			}
		}
		if f, ok := begin[run.Number]; ok {
			source.Name, source.SnapLen, source.Description = f.Name, f.SnapLen, f.Description
		}
		if head, err := pcapng.AppendSegmentHead(nil, pcapng.Section{Application: "unifiedd log repair"}, []pcapng.Interface{source}, seg); err == nil {
			if head = pcapng.Rehead(head, seg, length); head != nil {
				all = append(all, head)
			}
		}
	}
	return all
}

// runsOf returns the runs that may have written a segment, and the known interfaces of these runs.
func (r *Repair) runsOf(segment uint64, m *Manifest, like []sample, raw io.ReaderAt) (all []Run, known map[uint64]pcapng.Interface) {
	known = map[uint64]pcapng.Interface{}
	for _, s := range like {
		known[s.run.Number] = s.head.Interface(0)
	}
	if m != nil {
		if run, ok := m.runOf(segment); ok {
			return []Run{run}, known
		}
	}
	if said, ok := originIn(raw); ok {
		run := Run{Number: said.run, Start: said.start, Segment: segment}
		for _, s := range like {
			if s.run.Number == run.Number {
				run.Start, run.Segment = s.run.Start, min(s.segment, segment)
			}
		}
		all = append(all, run)
	}
	for _, s := range slices.Backward(like) { // the one before, then the one after
		if s.segment < segment {
			all = append(all, Run{Number: s.run.Number, Start: s.run.Start, Segment: s.segment})
			break
		}
	}
	for _, s := range like {
		if s.segment > segment {
			all = append(all, Run{Number: s.run.Number, Start: s.run.Start, Segment: segment})
			break
		}
	}
	return all, known
}

// originIn finds the origin of the run in a damaged head.
func originIn(raw io.ReaderAt) (o origin, ok bool) {
	b := make([]byte, 64<<10)
	n, _ := raw.ReadAt(b, 0) // a short read is enough
	for f, text := range forms {
		at := bytes.Index(b[:n], []byte(text[:strings.Index(text, "%")]))
		if at < 0 {
			continue
		}
		if _, err := fmt.Sscanf(string(b[at:min(n, at+80)]), text, &o.start, &o.run); err == nil && o.start > 0 {
			o.form = form(f)
			return o, true
		}
	}
	return o, false
}

func (r *Repair) ring() (*rings, bool) {
	s := r.log.set
	if k, ok := s.(known); ok {
		s = k.set
	}
	on, ok := s.(*rings)
	return on, ok
}

func (r *Repair) segmentID(generation uint64) pcapng.SegmentID {
	on, _ := r.ring()
	return on.SegmentID(generation)
}

// overlay is a log with heads that are not on the disk yet, and without lost segments.
type overlay struct {
	set
	heads map[uint64]piece
	gone  map[uint64]bool
}

func (o *overlay) list(from uint64) ([]piece, error) {
	all, err := o.set.list(from)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(p piece) bool { return o.gone[p.number] || o.heads[p.number].head != nil })
	for _, p := range o.heads {
		if p.number >= from {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b piece) int { return cmp.Compare(a.number, b.number) })
	return all, nil
}

// find returns a segment from the list or, if the list lacks it, the piece that the list would
// have.
func (o *overlay) find(number uint64) (piece, error) {
	all, err := o.set.list(number)
	if err != nil {
		return piece{}, err
	}
	for _, p := range all {
		if p.number == number {
			return p, nil
		}
	}
	return o.set.piece(number), nil
}
