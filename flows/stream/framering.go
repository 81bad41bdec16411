package stream

import "github.com/unifiedd/unifiedd/umem"

// frameRing is a queue of frames, of one thread. Whoever pushes knows that there is room.
type frameRing struct {
	items      []umem.Frame
	head, tail uint32
}

// newFrameRing has room for at least n frames.
func newFrameRing(n int) frameRing {
	size := 1
	for size < n {
		size *= 2
	}
	return frameRing{items: make([]umem.Frame, size)}
}

func (q *frameRing) len() int { return int(q.tail - q.head) }

func (q *frameRing) at(n uint32) *umem.Frame { return &q.items[n&uint32(len(q.items)-1)] }

func (q *frameRing) push(f umem.Frame) {
	*q.at(q.tail) = f
	q.tail++
}

// pop fills dst from the front and returns how many there were.
func (q *frameRing) pop(dst []umem.Frame) int {
	n := min(len(dst), q.len())
	for i := range dst[:n] {
		dst[i] = *q.at(q.head)
		q.head++
	}
	return n
}

// front is what lies in one piece at the front, at most most frames, which skip then drops.
func (q *frameRing) front(most int) []umem.Frame {
	at := int(q.head & uint32(len(q.items)-1))
	n := min(q.len(), len(q.items)-at, most)
	return q.items[at : at+n]
}

func (q *frameRing) skip(n int) { q.head += uint32(n) }
