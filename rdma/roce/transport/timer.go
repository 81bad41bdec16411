package transport

import (
	"time"
)

// timers holds the deadlines of queue pairs in a heap, ordered by the time to look at each. A
// deadline that is extended keeps its place in the heap until it reaches the front, so an ACK only
// writes one word.
type timers struct {
	heap []*QueuePair
}

// timer is the part of timers that each queue pair has.
type timer struct {
	deadline Time // never: there is none
	look     Time // its key in the heap
	place    int  // in the heap, from 1; 0: not in it
}

// set replaces the deadline of a queue pair.
func (t *timers) set(q *QueuePair, at Time) {
	q.timer.deadline = at
	switch {
	case q.timer.place == 0:
		q.timer.look = at
		t.heap = append(t.heap, q)
		t.up(len(t.heap) - 1)
	case at < q.timer.look:
		q.timer.look = at
		t.up(q.timer.place - 1)
	}
}

func (t *timers) clear(q *QueuePair) { q.timer.deadline = never }

// first returns the queue pair with the next deadline, nil if there is none.
func (t *timers) first() *QueuePair {
	for len(t.heap) > 0 {
		q := t.heap[0]
		switch q.timer.deadline {
		case q.timer.look:
			return q
		case never:
			t.remove(q)
		default: // it was extended
			q.timer.look = q.timer.deadline
			t.down(0)
		}
	}
	return nil
}

// expired takes a queue pair whose deadline has passed, nil if there is none.
func (t *timers) expired(now Time) *QueuePair {
	q := t.first()
	if q == nil || q.timer.deadline > now {
		return nil
	}
	t.remove(q)
	q.timer.deadline = never
	return q
}

// remove takes the queue pair out of the heap.
func (t *timers) remove(q *QueuePair) {
	if q.timer.place == 0 {
		return
	}
	i, last := q.timer.place-1, len(t.heap)-1
	t.swap(i, last)
	t.heap[last] = nil
	t.heap = t.heap[:last]
	q.timer.place = 0
	if i < last {
		t.down(i)
		t.up(i)
	}
}

func (t *timers) up(i int) {
	for t.heap[i].timer.place = i + 1; i > 0; {
		parent := (i - 1) / 2
		if t.heap[parent].timer.look <= t.heap[i].timer.look {
			return
		}
		t.swap(i, parent)
		i = parent
	}
}

func (t *timers) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(t.heap); child++ {
			if t.heap[child].timer.look < t.heap[least].timer.look {
				least = child
			}
		}
		if least == i {
			return
		}
		t.swap(i, least)
		i = least
	}
}

func (t *timers) swap(i, j int) {
	t.heap[i], t.heap[j] = t.heap[j], t.heap[i]
	t.heap[i].timer.place, t.heap[j].timer.place = i+1, j+1
}

// Time is a time of the caller's clock in nanoseconds. The clock must not go back; its zero is
// arbitrary.
type Time int64

// never is later than all deadlines.
const never Time = 0

// After returns t plus d.
func (t Time) After(d time.Duration) Time { return t + Time(d) }
