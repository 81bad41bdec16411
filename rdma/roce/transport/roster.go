package transport

// pairList is queue pairs in turn, each at most once.
type pairList struct {
	ring    []*QueuePair
	head, n int
	of      listKind
}

// listKind is what queue pairs are in a list of queue pairs for.
type listKind uint8

const (
	sending   listKind = iota // they may have requests to send
	answering                 // they have acknowledgements or answers to send
	departing                 // they have requests that complete when packets have left
	touched                   // their indices are to be published
	waiting                   // they may need a deadline for what they have sent
	holding                   // they have acknowledgements to send that are held back
	concerns
)

// add puts the queue pair at the end unless it is there already.
func (r *pairList) add(q *QueuePair) {
	if q.listed[r.of] {
		return
	}
	q.listed[r.of] = true
	at := r.head + r.n
	if at >= len(r.ring) {
		at -= len(r.ring)
	}
	r.ring[at] = q
	r.n++
}

// next takes the first; there is one.
func (r *pairList) next() *QueuePair {
	q := r.ring[r.head]
	r.ring[r.head] = nil
	if r.head++; r.head == len(r.ring) {
		r.head = 0
	}
	r.n--
	q.listed[r.of] = false
	return q
}

// remove takes out the queue pair, which is about to go.
func (r *pairList) remove(q *QueuePair) {
	for range r.n {
		if other := r.next(); other != q {
			r.add(other)
		}
	}
}
