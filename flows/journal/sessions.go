package journal

import (
	"errors"
	"fmt"
	"slices"

	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/ring"
)

// Mark is the progress of a session in a log: its last sequence, and the owner of that record (see
// [protocol.OwnerOf]).
type Mark struct{ Sequence, Owner uint64 }

// remembered is how many sessions Sessions keeps at least; it keeps at most twice as many.
const remembered = 1 << 15

// Sessions keeps the most recent sessions of a log. The zero value is empty.
type Sessions struct{ young, old map[uint64]Mark }

// Note sets the progress of a session.
func (s *Sessions) Note(session uint64, m Mark) {
	if _, known := s.young[session]; s.young == nil || len(s.young) >= remembered && !known {
		s.old, s.young = s.young, map[uint64]Mark{}
	}
	s.young[session] = m
}

// Last returns the progress of a session, or the zero Mark if the session is not known.
func (s *Sessions) Last(session uint64) Mark {
	if m, known := s.young[session]; known {
		return m
	}
	return s.old[session]
}

// Len returns an upper bound of the number of sessions: some may be counted twice.
func (s *Sessions) Len() int { return len(s.young) + len(s.old) }

// linkType is the link type of logs, LINKTYPE_USER0.
const linkType = 147

// form is what the description in the head of each segment says about records.
type form uint8

const (
	plain form = iota
	// owned: records have owners. A release that does not know owners refuses such a log.
	owned
	// grouped: records have epochs, and owners if clients have certificates. A release that does not know
	// groups refuses such a log.
	grouped
)

// forms are the descriptions, with the start and the number of a run.
var forms = [...]string{
	plain:   "log from position %d in run %016x",
	owned:   "log of owners from position %d in run %016x",
	grouped: "log of a group from position %d in run %016x",
}

// of returns a Source whose description has this form.
func (f form) of(s pcapng.Interface, start, run uint64) pcapng.Interface {
	s.Description = fmt.Sprintf(forms[f], start, run)
	return s
}

// Source describes a log in the head of a segment: the flow's name, the position of the first
// record of this run, a random number for the run, and the longest message in bytes, header
// included.
func Source(flow string, start, run uint64, longest uint32) pcapng.Interface {
	return plain.of(pcapng.Interface{Name: flow, SnapLen: longest, LinkType: linkType}, start, run)
}

// Owned is a Source whose records have owners, see [protocol.OwnerOf].
func Owned(s pcapng.Interface, start, run uint64) pcapng.Interface { return owned.of(s, start, run) }

// Grouped is a Source whose records have epochs and may have owners.
func Grouped(s pcapng.Interface, start, run uint64) pcapng.Interface {
	return grouped.of(s, start, run)
}

// verified is in the heads of runs that checked all payloads on receipt.
const verified = "payloads were verified"

// Verified adds to a Source that payloads were checked on receipt. A bad payload in such a log was
// damaged later. In any other log the client may have sent it.
func Verified(s pcapng.Interface) pcapng.Interface {
	s.Comment = verified
	return s
}

// errNotLog means that segments do not belong to a log.
var errNotLog = errors.New("no log of messages")

// origin is the description of a run, from a head.
type origin struct {
	start, run uint64
	verified   bool
	form       form
}

func originOf(head *pcapng.Head) (o origin, err error) {
	f := head.Interface(0)
	if f.LinkType != linkType {
		return o, fmt.Errorf("%w: its packets are of link type %d (is it a capture?)", errNotLog, f.LinkType)
	}
	if !o.parse(f.Description) {
		return o, fmt.Errorf("%w: its head says %.80q, and not where a log begins", errNotLog, f.Description)
	}
	o.verified = f.Comment == verified
	return o, nil
}

// parse parses a description.
func (o *origin) parse(description string) bool {
	for f, text := range forms {
		if _, err := fmt.Sscanf(description, text, &o.start, &o.run); err == nil && o.start > 0 && fmt.Sprintf(text, o.start, o.run) == description {
			o.form = form(f)
			return true
		}
	}
	return false
}

var (
	// ErrMissing is in a Gap whose records should exist.
	ErrMissing = errors.New("not there")
	// errRemoved is in a Gap whose records were in removed segments.
	errRemoved = errors.New("not kept any more")
)

// Gap says that records of the log cannot be read. The next call of the reader continues after
// them.
type Gap struct {
	Position uint64 // of the first record
	Records  uint64 // number of records
	Segment  string // where the gap was found
	Offset   int64
	Session  uint64 // of a record with only a bad payload, and its Sequence; 0: not known
	Sequence uint64
	Owner    uint64 // of that record
	Err      error  // ErrMissing, errRemoved, or a protocol.Reason
}

func (g *Gap) Error() string {
	what := fmt.Sprintf("record %d is", g.Position)
	if g.Records > 1 {
		what = fmt.Sprintf("records %d to %d are", g.Position, g.Position+g.Records-1)
	}
	if g.Segment == "" {
		return fmt.Sprintf("%s lost from the log: %v", what, g.Err)
	}
	return fmt.Sprintf("%s lost from the log: %v (noticed in %s at offset %d)", what, g.Err, g.Segment, g.Offset)
}

// Removed reports whether the records were in segments that were removed.
func (g *Gap) Removed() bool { return errors.Is(g.Err, errRemoved) }

func (g *Gap) Unwrap() error { return g.Err }

// Cut says that records which a reader has returned are void: they were not durable, a crash
// removed them, and the log continued before them. The next call of the reader returns what
// replaced them.
type Cut struct {
	From  uint64 // the first void record
	Given uint64 // the last one returned
}

func (c *Cut) Error() string {
	return fmt.Sprintf("records %d to %d, which were read, are void: the log lost them in a crash and went on from there", c.From, c.Given)
}

// Resume returns the manifest for continuing a log whose end was found and whose segments were
// recovered. It updates the manifest that was read, or makes the first one. Segments from next on
// are unused: the log continues with segment next.
func Resume(path string, end End, next uint64) (Manifest, error) {
	l, err := Open(path)
	if errors.Is(err, ring.ErrNone) {
		return resume(nil, end, next)
	}
	if err != nil {
		return Manifest{}, err
	}
	m, err := resume(l.set, end, next)
	return m, errors.Join(err, l.Close())
}

func resume(s set, end End, next uint64) (m Manifest, err error) {
	if end.Manifest != nil {
		m = *end.Manifest
	} else {
		m = Manifest{Oldest: 1}
		if m.ID, err = newLogID(); err != nil {
			return m, err
		}
	}
	m.Next, m.Reserved = end.Next, end.Next
	next = max(next, m.After())
	m.drop(next)
	if s == nil {
		return m, nil
	}
	all, err := s.list(0)
	if err != nil {
		return m, err
	}
	for _, p := range all {
		if p.ahead || p.number <= m.Newest || p.number >= next {
			continue
		}
		one, err := s.open(p)
		if errors.Is(err, errAbsent) {
			continue
		}
		if err != nil {
			return m, fmt.Errorf("read the head of segment %d: %w", p.number, err)
		}
		m.Begin(p.number, Run{Number: one.run, Start: one.start})
		if err := one.Close(); err != nil {
			return m, err
		}
	}
	return m, nil
}

// drop removes the segments from a number on. They never had data.
func (m *Manifest) drop(from uint64) {
	if m.Newest < from {
		return
	}
	m.Newest = max(from, m.Oldest) - 1
	m.Runs = slices.DeleteFunc(slices.Clone(m.Runs), func(r Run) bool { return r.Segment >= from })
}

// After returns the smallest number for the next segment.
func (m *Manifest) After() uint64 {
	if n := len(m.Absent); n > 0 {
		return m.Absent[n-1].Last + 1
	}
	return 0
}
