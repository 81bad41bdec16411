package powercut

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"

	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/internal/ring"
	"github.com/unifiedd/unifiedd/selftests/harness"
)

// remains is the content of a log after a cut.
type remains struct {
	first    uint64 // position of the oldest message
	messages []Message
	sessions map[uint64]Message // the last message of each session
	segments map[string]bool    // the segments with messages
}

// next is the position after the last message.
func (r *remains) next() uint64 { return r.first + uint64(len(r.messages)) }

// inspectLog reads a log and checks it.
func (s *state) inspectLog(f flow, claims []Claim) (*remains, error) {
	found, err := s.readLog(f)
	if err != nil {
		return found, err
	}
	if err := checkLog(found.messages, found.first, claims, f.onDevice()); err != nil {
		return found, err
	}
	return found, errors.Join(s.enoughSegments(f, found), s.verifyLog(f, found))
}

// readLog reads all of a log. Each message must have the bytes that its client sent.
func (s *state) readLog(f flow) (_ *remains, err error) {
	found := &remains{first: 1, sessions: map[uint64]Message{}, segments: map[string]bool{}}
	l, err := journal.Open(s.path(f))
	if errors.Is(err, ring.ErrNone) {
		return found, nil // the cut came before the log existed
	}
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	r := l.Reader(0)
	defer func() { err = errors.Join(err, r.Close()) }()
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return found, fmt.Errorf("%w: %w", errLost, err)
		}
		if err := found.add(f, &rec); err != nil {
			return found, err
		}
	}
}

// add adds a record. The session identifies the client, except in the session's first record.
func (r *remains) add(f flow, rec *journal.Record) error {
	m := Message{r.sessions[rec.Session].Client, rec.Sequence}
	if m.Client == 0 {
		m.Client = sender(f, rec)
	}
	if m.Client == 0 || harness.Differs(rec.Payload, uint64(m.Client), m.Number) >= 0 || len(rec.Payload) != len(m.Bytes()) {
		return fmt.Errorf("%w: position %d, in %s at offset %d: %x", errAlien, rec.Position, rec.Segment, rec.Offset, rec.Payload)
	}
	if len(r.messages) == 0 {
		r.first = rec.Position
	}
	r.messages, r.sessions[rec.Session], r.segments[rec.Segment] = append(r.messages, m), m, true
	return nil
}

// sender returns the client that sent a message; 0: none.
func sender(f flow, rec *journal.Record) uint32 {
	for _, c := range append(f.clients(), f.later()...) {
		if harness.Differs(rec.Payload, uint64(c), rec.Sequence) < 0 {
			return c
		}
	}
	return 0
}

// enoughSegments checks that the ring did not overwrite more segments than necessary.
func (s *state) enoughSegments(f flow, found *remains) error {
	if found.first == 1 {
		return nil
	}
	file, err := os.Open(s.path(f))
	if err != nil {
		return err
	}
	defer file.Close()
	on, err := ring.Find(file, uint64(parts[f.part].Length))
	if err == nil && uint64(len(found.segments)+spare) < on.Slots {
		err = fmt.Errorf("%w: %d segments are left of %d", errLost, len(found.segments), on.Slots)
	}
	return err
}

// verifyLog runs unifiedd log verify on a log. The command must succeed.
func (s *state) verifyLog(f flow, found *remains) error {
	if len(found.messages) == 0 {
		return nil // on a device the command may report that there is no log
	}
	said, err := exec.Command(s.program, "log", "verify", s.path(f)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: log verify: %w\n%s", errLost, err, said)
	}
	return nil
}

// foretell checks where a log's flow will continue: the next position, and the last message of each
// session.
func (s *state) foretell(f flow, found *remains) error {
	end, err := journal.Tail(s.path(f))
	if err != nil {
		return err
	}
	if end.Next != found.next() || len(end.Gaps) > 0 {
		return fmt.Errorf("%w: the log is to go on at position %d, and its last message is at %d; gaps: %v", errLost, end.Next, found.next()-1, end.Gaps)
	}
	for session, last := range found.sessions {
		if end.Sessions.Last(session).Sequence != last.Number {
			return fmt.Errorf("%w: session %x of client %d is to go on behind message %d, and the log has %d", errOrder, session, last.Client, end.Sessions.Last(session).Sequence, last.Number)
		}
	}
	return nil
}

// tryLogs recovers the logs. With goOn new clients append to the newest log.
func (s *state) tryLogs(claims []Claim, goOn bool) error {
	before, err := s.inspectLogs(claims, "before recovery", s.foretell)
	if err != nil {
		return err
	}
	later, err := s.recoverLogs(before, goOn)
	if err != nil {
		return err
	}
	_, err = s.inspectLogs(slices.Concat(claims, later), "after recovery", func(f flow, found *remains) error {
		return found.continues(before[f.number], goOn && f == s.newest())
	})
	return err
}

// newest is the log that the flow was writing at the power cut.
func (s *state) newest() flow { return s.begun[len(s.begun)-1] }

// inspectLogs inspects all logs, and calls judge for each.
func (s *state) inspectLogs(claims []Claim, when string, judge func(flow, *remains) error) (map[int]*remains, error) {
	all := map[int]*remains{}
	var errs []error
	for _, f := range s.begun {
		found, err := s.inspectLog(f, of(f, claims))
		if err == nil {
			err = judge(f, found)
		}
		if all[f.number] = found; err != nil {
			errs = append(errs, fmt.Errorf("log %d, %s: %w", f.number, when, err))
		}
	}
	return all, errors.Join(errs...)
}

// of returns the claims about a flow.
func of(f flow, claims []Claim) (some []Claim) {
	for _, c := range claims {
		if int(c.Flow) == f.number {
			some = append(some, c)
		}
	}
	return some
}

// laterMessages is how many messages each client sends to a log after a cut.
const laterMessages = 30

// recoverLogs makes the daemon recover all logs. With goOn clients append to the newest one, and
// later has their acknowledgements as claims.
func (s *state) recoverLogs(before map[int]*remains, goOn bool) (later []Claim, err error) {
	t, f := s.t, s.newest()
	var text []string
	for _, f := range s.begun {
		text = append(text, f.logYAML(&s.pair.B, s.dir, s.devices[f.part]))
	}
	d := launch(t, s.program, &s.pair.B, "ordinary", text...)
	d.Running(t)
	now, err := d.Status()
	if err != nil {
		return nil, err
	}
	for i, f := range s.begun {
		if first := now.Flows[i].Log.First; first != before[f.number].next() {
			return nil, fmt.Errorf("%w: log %d goes on at position %d, and its last message is at %d", errOrder, f.number, first, before[f.number].next()-1)
		}
	}
	if goOn {
		for _, r := range appendTo(t, &s.pair.A, f.address(&s.pair.B), f.name(), f.later(), laterMessages).await(t) {
			later = append(later, Claim{Marker: Marker{Flow: uint32(f.number), Client: r.Client, Packets: r.Number, Position: r.position}})
		}
	}
	d.Terminate(t)
	return later, s.complaint(d.Log.String())
}

// continues checks that a log has its messages of before, and those that were appended since.
func (r *remains) continues(before *remains, appended bool) error {
	next := before.next()
	if appended {
		next += laterMessages * uint64(len(flow{}.later()))
	}
	if r.next() != next {
		return fmt.Errorf("%w: the log ends at position %d and not at %d", errLost, r.next()-1, next-1)
	}
	for i, m := range before.messages {
		position := before.first + uint64(i)
		if position >= r.first && r.messages[position-r.first] != m {
			return fmt.Errorf("%w: position %d has %+v, and had %+v", errOrder, position, r.messages[position-r.first], m)
		}
	}
	return nil
}
