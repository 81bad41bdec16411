package rdma

import "github.com/unifiedd/unifiedd/umem"

// frameQueue is a ring of frames.
type frameQueue struct {
	items      []umem.Frame
	head, tail uint32
}

// newFrameQueue has room for n frames.
func newFrameQueue(n int) frameQueue { return frameQueue{items: make([]umem.Frame, pow2(n))} }

// pow2 is the smallest power of two that is n or more.
func pow2(n int) int {
	size := 1
	for size < n {
		size *= 2
	}
	return size
}

func (q *frameQueue) len() int { return int(q.tail - q.head) }

// at is the place of a number between head and tail.
func (q *frameQueue) at(n uint32) *umem.Frame { return &q.items[n&uint32(len(q.items)-1)] }

func (q *frameQueue) push(f umem.Frame) {
	*q.at(q.tail) = f
	q.tail++
}

// pop fills dst from the front and returns how many there were.
func (q *frameQueue) pop(dst []umem.Frame) int {
	n := min(len(dst), q.len())
	for i := range dst[:n] {
		dst[i] = *q.at(q.head)
		q.head++
	}
	return n
}
