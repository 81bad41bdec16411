package program

import "github.com/unifiedd/unifiedd/umem"

// item is a packet or message in the program's memory.
type item struct {
	frame              umem.Frame
	position, sequence uint64
	stamp              uint64
}

// queue has what waits for the program, oldest first.
type queue struct {
	items    []item
	first, n int
}

func (q *queue) full() bool { return q.n == len(q.items) }

// push adds an item. The queue must not be full.
func (q *queue) push(i item) {
	q.items[(q.first+q.n)%len(q.items)] = i
	q.n++
}

// pop removes the oldest item. There must be one.
func (q *queue) pop() item {
	i := q.items[q.first]
	q.first = (q.first + 1) % len(q.items)
	q.n--
	return i
}
