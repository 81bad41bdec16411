package relay

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/source/message"
	"github.com/unifiedd/unifiedd/flows/stage"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/umem"
)

// Reducer adds up the messages of all clients: the first message of each client, then the second of
// each, and so on. It sends a sum when every client has contributed its part, and acknowledges the
// parts when enough peers have the sum. Reducer implements message.Combiner. It belongs to the
// worker's thread.
//
// A sum has one part of each participant. The participant's certificate or number identifies it
// ([stream.ReceiverConfig]). A participant that begins a new session continues with the oldest
// unacknowledged sum. Reducer does not add again the parts that the participant's earlier session
// contributed to that sum and later ones.
//
// A client may be ahead of the others by its window. It must not take the last frames, because the
// parts of the other clients need them. Each sum is stored in the frame of its first part.
type Reducer struct {
	source       *message.Source
	sum          *stage.Sum
	region       *umem.Region
	clients      int
	next         []uint64               // by participant: the sum of its next part
	expected     [sessionNumbers]uint64 // by session number: refused message, to be resent; 0: none
	sums         []partialSum           // ring, from acknowledged to begun
	parts        []part                 // of each sum, by participant; sequence 0: missing
	begun        uint64                 // sums that have at least one part
	sent         uint64                 // sums that are sent
	acknowledged uint64                 // sums whose parts are acknowledged
	enough       func() uint64          // returns the number of sums that enough peers have
	out          pipeline.Batch         // the sum that is being sent
	duplicates   counter.Counter        // parts that a sum already had
}

// partialSum is a sum that is not complete or not acknowledged.
type partialSum struct {
	frame umem.Frame // of the first part
	parts int
}

// part is a message that is part of a sum.
type part struct {
	sequence uint64
	received int64 // nanoseconds since 1970
	session  uint16
}

// sessionNumbers is one more than the highest session number. It is twice the largest number of
// clients.
const sessionNumbers = 1 << 13

// NewReducer returns a reducer for a flow with a sum among its stages; otherwise it returns nil. No
// client is ahead of the acknowledgements by more than its window.
func NewReducer(stages []config.Stage, region *umem.Region, clients, window int) (*Reducer, error) {
	i := slices.IndexFunc(stages, func(s config.Stage) bool { return s.Sum != nil })
	if i < 0 {
		return nil, nil
	}
	sum, err := stage.NewSum(stage.Type(stages[i].Sum.Type))
	if err != nil {
		return nil, err
	}
	size := 1 << bits.Len(uint(window))
	return &Reducer{
		sum: sum, region: region, clients: clients, next: make([]uint64, clients), sums: make([]partialSum, size),
		parts: make([]part, size*clients), out: pipeline.Batch{Frames: make([]umem.Frame, 1)},
	}, nil
}

// Connect sets the source of messages, and the function that returns how many sums enough peers
// have.
func (r *Reducer) Connect(source *message.Source, enough func() uint64) {
	r.source, r.enough = source, enough
}

// Join makes a participant that begins a session continue with the oldest sum that is not
// acknowledged.
func (r *Reducer) Join(participant int) { r.next[participant] = r.acknowledged }

func (r *Reducer) at(n uint64) *partialSum { return &r.sums[n&uint64(len(r.sums)-1)] }

func (r *Reducer) partsOf(n uint64) []part {
	at := int(n&uint64(len(r.sums)-1)) * r.clients
	return r.parts[at : at+r.clients]
}

// has returns the part that a participant has contributed to its next sum. ok is false if there is
// none. If that sum is acknowledged, the part has sequence 0.
func (r *Reducer) has(participant int) (p *part, ok bool) {
	n := r.next[participant]
	if n < r.acknowledged {
		return new(part), true
	}
	if n == r.begun {
		return nil, false
	}
	p = &r.partsOf(n)[participant]
	return p, p.sequence != 0
}

// add adds a message to the participant's next sum. free reports whether its frame can be freed.
// fits is false if the message does not match the other parts; then it is not part of the sum.
func (r *Reducer) add(f umem.Frame, participant int, received int64) (free, fits bool) {
	n := r.next[participant]
	payload := umem.Frame{Addr: f.Addr + protocol.HeaderLen, Len: f.Len - protocol.HeaderLen}
	s := r.at(n)
	switch {
	case n == r.begun && !r.sum.Whole(r.region.Bytes(payload)):
		free = true
	case n == r.begun:
		r.begun, *s, fits = n+1, partialSum{frame: payload}, true
		clear(r.partsOf(n))
	default:
		free = true
		fits = r.sum.Add(r.region.Bytes(s.frame), r.region.Bytes(payload))
	}
	if !fits {
		return free, false
	}
	r.partsOf(n)[participant] = part{session: r.region.Side(f).Queue, sequence: r.sequence(f), received: received}
	s.parts++
	r.next[participant] = n + 1
	return free, true
}

// repeat counts a part that its sum already has.
func (r *Reducer) repeat(participant int) {
	r.next[participant]++
	r.duplicates.Add(1)
}

// sequence returns the sequence of a message.
func (r *Reducer) sequence(f umem.Frame) uint64 {
	return binary.BigEndian.Uint64(r.region.At(f.Addr, protocol.HeaderLen)[8:])
}

// expects reports whether to process a message. The client resends messages after a refused one, so
// expects skips them. It accepts the first message of a new session with the same number.
func (r *Reducer) expects(session uint16, sequence uint64) bool {
	if n := r.expected[session]; n != 0 && sequence != n && sequence != 1 {
		return false
	}
	r.expected[session] = 0
	return true
}

// complete returns the next sum to send if it is complete, else nil.
func (r *Reducer) complete() *partialSum {
	if s := r.at(r.sent); r.sent < r.begun && s.parts == r.clients {
		return s
	}
	return nil
}

// Receive implements message.Combiner. It receives even while many sums wait for parts, because the
// missing parts may be next. Credits ensure that each client can send one.
func (r *Reducer) Receive(sink pipeline.Output, now time.Time) (more bool) {
	if !r.send(sink, now) {
		return false
	}
	_, more = r.source.Take(pipeline.Burst)
	b := r.source.Batch()
	for _, f := range b.Held() {
		if r.receive(f, now.UnixNano()) {
			r.source.Free().Push(f)
		}
	}
	b.Drop(b.Len)
	return r.send(sink, now) && more
}

// receive adds a message to its sum, or refuses it. It reports whether the frame can be freed.
func (r *Reducer) receive(f umem.Frame, received int64) (free bool) {
	session, sequence, receiver := r.region.Side(f).Queue, r.sequence(f), r.source.Receiver()
	if !r.expects(session, sequence) {
		return true
	}
	participant, ok := receiver.Participant(session)
	if !ok {
		receiver.Reject(session, sequence, protocol.BadSession)
		return true
	}
	if p, ok := r.has(participant); ok {
		r.repeat(participant)
		if p.sequence == 0 {
			receiver.Acknowledge(session, sequence, 0)
			return true
		}
		receiver.Acknowledge(p.session, p.sequence, 0) // that session is closed
		p.session, p.sequence = session, sequence
		return true
	}
	free, fits := r.add(f, participant, received)
	if fits {
		r.source.CountReceived()
		return free
	}
	receiver.Reject(session, sequence, protocol.BadLength)
	r.expected[session] = sequence
	return free
}

// send sends the complete sums, and returns false if the sink is blocked.
func (r *Reducer) send(sink pipeline.Output, now time.Time) bool {
	for s := r.complete(); s != nil; s = r.complete() {
		if r.out.Len == 0 {
			r.out.Frames[0], r.out.Len = s.frame, 1
			r.region.Side(s.frame).Stamp = uint64(now.UnixNano())
		}
		if !sink.Write(&r.out, now) {
			return false
		}
		r.sent++
	}
	return true
}

// Acknowledge implements message.Combiner: it acknowledges the parts of sums that enough peers have.
func (r *Reducer) Acknowledge(now time.Time) {
	for upTo := r.enough(); r.acknowledged < upTo; r.acknowledged++ {
		for _, p := range r.partsOf(r.acknowledged) {
			r.source.AcknowledgeOne(p.session, p.sequence, p.received, now)
		}
	}
}

// Observe implements message.Combiner.
func (r *Reducer) Observe(to *status.Flow) {
	s := status.Stage(r.sum.Stats())
	if n := r.duplicates.Load(); n > 0 {
		s.Left["duplicate"] = n
	}
	to.Stages = append(to.Stages, s)
}
