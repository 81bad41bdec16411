package flows

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stage"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/umem"
)

// reduction adds up the messages of all clients: the first of each, then the second of
// each, and so on. A sum is complete, and sent on, once every client has given its part, and the
// parts are acknowledged when peers have it. It belongs to the worker's thread.
//
// A sum has one part of each participant, who is known by certificate or number ([stream.ReceiverConfig.Participants]). One that begins a new
// session goes on with the oldest sum that is not acknowledged: what its earlier session gave to that one, and to those behind it, is there already,
// and is not added again.
//
// Clients may be ahead of each other by their window: those that run ahead must not take the last frames, which the
// parts of others need. Each sum lies in the frame of its first part.
type reduction struct {
	sum        *stage.Sum
	region     *umem.Region
	clients    int
	next       []uint64               // by participant: the sum that its next part is of
	awaited    [sessionNumbers]uint64 // by the session's number: the message that was rejected and is to come again; 0: none was
	sums       []partial              // from told to begun, in a ring
	parts      []origins              // of the sums, those of one after the other's, by participant; sequence 0: missing
	begun      uint64                 // sums that have a part
	sent       uint64                 // of those, how many are sent on, the first ones
	told       uint64                 // and acknowledged
	duplicates counter.Counter        // parts that a sum had already
}

// partial is a sum that is not complete, or not acknowledged.
type partial struct {
	frame umem.Frame // the first part's
	have  int
	ready bool // stages have changed the sum
}

// sessionNumbers is one more than the highest number of a session: twice the most clients.
const sessionNumbers = 1 << 13

// openReduction makes one for so many clients with windows, beyond which none is ahead of what is acknowledged; nil where the stages have no sum.
func openReduction(all []config.Stage, region *umem.Region, clients, window int) (*reduction, error) {
	for _, c := range all {
		if c.Sum == nil {
			continue
		}
		sum, err := stage.NewSum(stage.Type(c.Sum.Type))
		if err != nil {
			return nil, err
		}
		size := 1 << bits.Len(uint(window))
		return &reduction{sum: sum, region: region, clients: clients, next: make([]uint64, clients), sums: make([]partial, size), parts: make([]origins, size*clients)}, nil
	}
	return nil, nil
}

// hasSum reports whether messages are added up.
func hasSum(all []config.Stage) bool {
	return slices.ContainsFunc(all, func(s config.Stage) bool { return s.Sum != nil })
}

func (r *reduction) at(n uint64) *partial { return &r.sums[n&uint64(len(r.sums)-1)] }

func (r *reduction) partsOf(n uint64) []origins {
	at := int(n&uint64(len(r.sums)-1)) * r.clients
	return r.parts[at : at+r.clients]
}

// joins has a participant that begins a session go on with the oldest sum that is not acknowledged.
func (r *reduction) joins(participant int) { r.next[participant] = r.told }

// has is what a sum has of a participant already, where its next part belongs: whose message that was; sequence 0 where it is acknowledged. ok is
// false where the sum has no part of it.
func (r *reduction) has(participant int) (part *origins, ok bool) {
	n := r.next[participant]
	if n < r.told {
		return new(origins), true
	}
	if n == r.begun {
		return nil, false
	}
	part = &r.partsOf(n)[participant]
	return part, part.sequence != 0
}

// add adds a message to the sum whose turn it is, and reports whether its frame is needed no
// more. Where it does not fit the other parts it is none of them, and fits is false.
func (r *reduction) add(f umem.Frame, participant int, taken int64) (free, fits bool) {
	n := r.next[participant]
	payload := umem.Frame{Addr: f.Addr + protocol.HeaderLen, Len: f.Len - protocol.HeaderLen}
	p := r.at(n)
	switch {
	case n == r.begun && !r.sum.Whole(r.region.Bytes(payload)):
		free = true
	case n == r.begun:
		r.begun, *p, fits = n+1, partial{frame: payload}, true
		clear(r.partsOf(n))
	default:
		free = true
		fits = r.sum.Add(r.region.Bytes(p.frame), r.region.Bytes(payload))
	}
	if !fits {
		return free, false
	}
	r.partsOf(n)[participant] = origins{session: r.region.Side(f).Queue, sequence: r.sequence(f), taken: taken}
	p.have++
	r.next[participant] = n + 1
	return free, true
}

// again counts a part that its sum has already.
func (r *reduction) again(participant int) {
	r.next[participant]++
	r.duplicates.Add(1)
}

// sequence is that of a message.
func (r *reduction) sequence(f umem.Frame) uint64 {
	return binary.BigEndian.Uint64(r.region.At(f.Addr, protocol.HeaderLen)[8:])
}

// expects reports whether a message is to be looked at. Those that had come behind one that was rejected come again behind that. The first
// message of another session with that number is none of them.
func (r *reduction) expects(session uint16, sequence uint64) bool {
	if n := r.awaited[session]; n != 0 && sequence != n && sequence != 1 {
		return false
	}
	r.awaited[session] = 0
	return true
}

// complete is the sum to be sent on next, once it is complete; else nil.
func (r *reduction) complete() *partial {
	if p := r.at(r.sent); r.sent < r.begun && p.have == r.clients {
		return p
	}
	return nil
}

// reduce takes messages, adds them up and sends on what is complete. It takes them however many sums
// wait for further parts, since these are among what comes; credits see to it that each client can send one.
func (r *rdmaRDMA) reduce(now time.Time) (more bool) {
	if !r.passSums(now) {
		return false
	}
	_, more = r.take(len(r.buf))
	for _, f := range r.buf[:r.count] {
		if r.addUp(f, now.UnixNano()) {
			r.spare.Push(f)
		}
	}
	r.drop(r.count)
	return r.passSums(now) && more
}

// addUp adds a message to its sum, or rejects it, and reports whether its frame is needed no more.
func (r *rdmaRDMA) addUp(f umem.Frame, taken int64) (free bool) {
	session, sequence := r.region.Side(f).Queue, r.sums.sequence(f)
	if !r.sums.expects(session, sequence) {
		return true
	}
	participant, ok := r.receiver.Participant(session)
	if !ok {
		r.receiver.Reject(session, sequence, protocol.BadSession)
		return true
	}
	if part, ok := r.sums.has(participant); ok {
		r.sums.again(participant)
		if part.sequence == 0 {
			r.receiver.Acknowledge(session, sequence, 0)
			return true
		}
		r.receiver.Acknowledge(part.session, part.sequence, 0) // the session that gave it has ended, and no more is owed to it
		part.session, part.sequence = session, sequence
		return true
	}
	free, fits := r.sums.add(f, participant, taken)
	if fits {
		r.given++
		return free
	}
	r.receiver.Reject(session, sequence, protocol.BadLength)
	r.sums.awaited[session] = sequence
	return free
}

// passSums sends on the sums that are complete.
func (r *rdmaRDMA) passSums(now time.Time) bool {
	for p := r.sums.complete(); p != nil; p = r.sums.complete() {
		r.one[0] = p.frame
		if !p.ready {
			r.apply(r.region, r.one[:], uint64(now.UnixNano()))
			p.ready = true
		}
		if !r.took(r.fan.Offer(r.one[:], 0, uint64(now.UnixNano()))) {
			return false
		}
		r.sums.sent++
	}
	return true
}

// acknowledgeSums acknowledges the parts of sums that enough peers have.
func (r *rdmaRDMA) acknowledgeSums(upTo uint64, now time.Time) {
	at := now.UnixNano()
	for ; r.sums.told < upTo; r.sums.told++ {
		for _, o := range r.sums.partsOf(r.sums.told) {
			r.receiver.Acknowledge(o.session, o.sequence, 0)
			r.spent.Record(uint64(max(0, at-o.taken)))
			r.answered++
		}
	}
}
