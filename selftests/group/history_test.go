package group

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// id is a message of a client: the session and the sequence in it.
type id struct{ session, sequence uint64 }

// record is a message in a log.
type record struct {
	position uint64
	id
}

// appended is a message that a client has sent. Times are harness.Monotonic.
type appended struct {
	id
	invoked      int64
	acknowledged int64  // 0: not acknowledged, as far as the client knows
	position     uint64 // that the client was told; 0: none
}

// reading is what somebody has read, from the beginning of the log on.
type reading struct {
	member       int   // whose files were read
	began, ended int64 // harness.Monotonic
	upToNow      bool  // see history
	saw          []record
}

// history is everything that clients and readers have seen of a group, and the log that the members have
// at the end.
//
// A group promises this to those who append: a message that is acknowledged is in the log, each message is
// there at most once and in the order of its client, and the log's order is that of time: a message that
// was sent after the acknowledgement of another one is behind it. So appends are linearizable.
//
// It promises less to those who read. A reader reads the files of one member, which say what is committed.
// That is written some tens of milliseconds after the acknowledgement, and a member that is cut off or
// stopped learns of no commits. So a read is a beginning of the log, but may be an old one: reads are not
// linearizable. Reads of one member's files never go back, and no read has a message that was not sent yet.
//
// Who needs everything up to now appends a message and reads until it is there. Such a read begins when the
// message is sent. It is linearizable: [reading.upToNow].
type history struct {
	appends []appended
	reads   []reading
	log     []record
}

// order returns the places of the log's messages in it. Its errors are messages that the log has twice, and
// positions that do not grow.
func (h *history) order() (places map[id]int, errs []error) {
	places = map[id]int{}
	for i, r := range h.log {
		if i > 0 && r.position <= h.log[i-1].position {
			errs = append(errs, fmt.Errorf("position %d follows position %d", r.position, h.log[i-1].position))
		}
		if first, twice := places[r.id]; twice {
			errs = append(errs, fmt.Errorf("message %d of session %x is at positions %d and %d", r.sequence, r.session, h.log[first].position, r.position))
			continue
		}
		places[r.id] = i
	}
	return places, errs
}

// checkAppends checks the appends against the log, in a time that grows linearly but for sorting.
func (h *history) checkAppends() error {
	places, errs := h.order()
	sent, acknowledged := make([]int64, len(h.log)), make([]int64, len(h.log))
	for i := range acknowledged {
		sent[i], acknowledged[i] = never, never
	}
	for _, a := range h.appends {
		at, there := places[a.id]
		switch {
		case !there && a.acknowledged != 0:
			errs = append(errs, fmt.Errorf("message %d of session %x is acknowledged and not in the log", a.sequence, a.session))
			continue
		case !there:
			continue
		case a.position != 0 && a.position != h.log[at].position:
			errs = append(errs, fmt.Errorf("message %d of session %x is at position %d, and its client was told %d", a.sequence, a.session, h.log[at].position, a.position))
		}
		sent[at], acknowledged[at] = a.invoked, cmp.Or(a.acknowledged, never)
	}
	last := map[uint64]uint64{}
	for i, r := range h.log {
		if sent[i] == never {
			errs = append(errs, fmt.Errorf("nobody sent what is at position %d: message %d of session %x", r.position, r.sequence, r.session))
		}
		if last[r.session]++; r.sequence != last[r.session] {
			errs = append(errs, fmt.Errorf("position %d has message %d of session %x, and message %d was to be there", r.position, r.sequence, r.session, last[r.session]))
			last[r.session] = r.sequence
		}
	}
	earliest, of := never, 0 // acknowledgement of the messages behind
	for i, r := range slices.Backward(h.log) {
		if sent[i] != never && earliest < sent[i] {
			errs = append(errs, fmt.Errorf("the message at position %d was sent after that at position %d was acknowledged", r.position, h.log[of].position))
		}
		if acknowledged[i] < earliest {
			earliest, of = acknowledged[i], i
		}
	}
	return joined(errs)
}

// never is later than all times.
const never = int64(1<<63 - 1)

// checkReads checks all reads against the log.
func (h *history) checkReads() error {
	var errs []error
	places, _ := h.order()
	newest := make([]int64, len(h.log)) // when the newest of the messages up to here was sent
	var acknowledged []appended
	for _, a := range h.appends {
		if at, there := places[a.id]; there {
			newest[at] = a.invoked
			if a.acknowledged != 0 {
				acknowledged = append(acknowledged, a)
			}
		}
	}
	for i := 1; i < len(newest); i++ {
		newest[i] = max(newest[i], newest[i-1])
	}
	slices.SortFunc(acknowledged, func(a, b appended) int { return cmp.Compare(a.acknowledged, b.acknowledged) })
	least := make([]int, len(acknowledged)+1) // how many messages a read has at least that began after so many acknowledgements
	for i, a := range acknowledged {
		least[i+1] = max(least[i], places[a.id]+1)
	}
	for i := range h.reads {
		r := &h.reads[i]
		n := len(r.saw)
		if n > len(h.log) || !slices.Equal(r.saw, h.log[:n]) {
			errs = append(errs, fmt.Errorf("%s is no beginning of the log: %s", r, difference(r.saw, h.log)))
			continue
		}
		if n > 0 && newest[n-1] > r.ended {
			errs = append(errs, fmt.Errorf("%s has a message that was sent %d ns later", r, newest[n-1]-r.ended))
		}
		before, _ := slices.BinarySearchFunc(acknowledged, r.began, func(a appended, at int64) int { return cmp.Compare(a.acknowledged, at) })
		if r.upToNow && n < least[before] {
			errs = append(errs, fmt.Errorf("%s lacks %d messages that were acknowledged before", r, least[before]-n))
		}
	}
	return joined(append(errs, h.back()...))
}

// back returns the reads of a member's files that have less than an earlier read of them.
func (h *history) back() (errs []error) {
	byBegin, byEnd := make([]*reading, len(h.reads)), make([]*reading, len(h.reads))
	for i := range h.reads {
		byBegin[i], byEnd[i] = &h.reads[i], &h.reads[i]
	}
	slices.SortStableFunc(byBegin, func(a, b *reading) int { return cmp.Compare(a.began, b.began) })
	slices.SortStableFunc(byEnd, func(a, b *reading) int { return cmp.Compare(a.ended, b.ended) })
	most := map[int]int{} // by member
	for _, r := range byBegin {
		for len(byEnd) > 0 && byEnd[0].ended < r.began {
			most[byEnd[0].member] = max(most[byEnd[0].member], len(byEnd[0].saw))
			byEnd = byEnd[1:]
		}
		if len(r.saw) < most[r.member] {
			errs = append(errs, fmt.Errorf("%s has less than an earlier one, which had %d messages", r, most[r.member]))
		}
	}
	return errs
}

func (r *reading) String() string {
	kind := "a read"
	if r.upToNow {
		kind = "a read up to now"
	}
	return fmt.Sprintf("%s of member %d from %d to %d, with %d messages,", kind, r.member+1, r.began, r.ended, len(r.saw))
}

// difference describes the first difference of what was read from the log.
func difference(saw, log []record) string {
	for i, r := range saw {
		if i >= len(log) {
			return fmt.Sprintf("it has message %d of session %x at position %d, behind the log's end", r.sequence, r.session, r.position)
		}
		if r != log[i] {
			return fmt.Sprintf("it has message %d of session %x at position %d, and the log has message %d of session %x at position %d", r.sequence, r.session, r.position, log[i].sequence, log[i].session, log[i].position)
		}
	}
	return "there is no difference"
}

// joined joins the first errors, because one mistake often has many consequences.
func joined(errs []error) error {
	const most = 10
	if n := len(errs); n > most {
		errs = append(errs[:most:most], fmt.Errorf("and %d more", n-most))
	}
	return errors.Join(errs...)
}

// String describes the history in figures.
func (h *history) String() string {
	acknowledged, told := 0, 0
	for _, a := range h.appends {
		if a.acknowledged != 0 {
			acknowledged++
		}
		if a.position != 0 {
			told++
		}
	}
	took := []time.Duration{0}
	for i := range h.reads {
		if r := &h.reads[i]; r.upToNow {
			took = append(took, time.Duration(r.ended-r.began))
		}
	}
	slices.Sort(took)
	return fmt.Sprintf("%d messages sent, %d acknowledged, %d with a position, %d in the log; %d reads, %d of them up to now, which took %v in the middle; the oldest read lacked messages that were acknowledged %v before it",
		len(h.appends), acknowledged, told, len(h.log), len(h.reads), len(took)-1, took[len(took)/2].Round(time.Millisecond), h.oldest().Round(time.Millisecond))
}

// oldest returns how long before the begin of a read a message was acknowledged, at most, that the read
// lacks.
func (h *history) oldest() (lag time.Duration) {
	places, _ := h.order()
	earliest := make([]int64, len(h.log)+1) // acknowledgement of the messages from here on
	for i := range earliest {
		earliest[i] = never
	}
	for _, a := range h.appends {
		if at, there := places[a.id]; there {
			earliest[at] = cmp.Or(a.acknowledged, never)
		}
	}
	for i := len(h.log) - 1; i >= 0; i-- {
		earliest[i] = min(earliest[i], earliest[i+1])
	}
	for i := range h.reads {
		if r := &h.reads[i]; len(r.saw) < len(h.log) {
			lag = max(lag, time.Duration(r.began-min(r.began, earliest[len(r.saw)])))
		}
	}
	return lag
}
