package porttest

import "github.com/unifiedd/unifiedd/umem"

// queue is a ring of frames with a fixed size.
type queue struct {
	ring  []umem.Frame
	first int
	count int
}

func newQueue(room int) queue { return queue{ring: make([]umem.Frame, room)} }

// peek returns the i-th oldest frame.
func (q *queue) peek(i int) *umem.Frame { return &q.ring[(q.first+i)%len(q.ring)] }

func (q *queue) push(f umem.Frame) {
	q.count++
	*q.peek(q.count - 1) = f
}

func (q *queue) pop() umem.Frame {
	f := *q.peek(0)
	q.first = (q.first + 1) % len(q.ring)
	q.count--
	return f
}

func (q *queue) clear() { q.first, q.count = 0, 0 }
