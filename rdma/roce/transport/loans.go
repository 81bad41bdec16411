package transport

import (
	"sync/atomic"

	"github.com/unifiedd/unifiedd/umem"
)

// loans are the frames that messages arrived in and that the program has, until it returns them. Two rings of as many
// places as frames may be on loan, so neither is ever full.
type loans struct {
	out   []umem.Frame // to the program
	back  []umem.Frame // from it
	mask  uint32
	limit uint32
	_     line
	tail  atomic.Uint32 // written by the engine: one past the last frame of a message that is complete
	next  uint32        // the engine's own: tail with those of the message that is coming in
	whole uint32        // the engine's own: tail with what is not published
	held  uint32        // the engine's own: on loan, with those of the message that is coming in
	taken uint32        // the engine's own: the next that came back
	_     line
	head  atomic.Uint32 // written by the program: the next frame it takes
	came  atomic.Uint32 // written by the program: one past the last it returned
	_     line
}

func newLoans(limit int) *loans {
	n := roundUp(limit)
	return &loans{out: make([]umem.Frame, n), back: make([]umem.Frame, n), mask: uint32(n - 1), limit: uint32(limit)}
}

// room says whether n more frames can be lent.
func (l *loans) room(n int) bool { return uint64(l.held)+uint64(n) <= uint64(l.limit) }

// lend puts in frames of a message whose last they are, or not.
func (l *loans) lend(frames []umem.Frame, last bool) {
	for i, f := range frames {
		f.Options = umem.More
		if last && i == len(frames)-1 {
			f.Options = 0
		}
		l.out[l.next&l.mask] = f
		l.next++
	}
	l.held += uint32(len(frames))
}

// coming is how many frames the message that is coming in has.
func (l *loans) coming() uint32 { return l.next - l.whole }

// deliver makes a message of the frames that came in.
func (l *loans) deliver() { l.whole = l.next }

// abandon gives back the frames of a message that does not become complete.
func (l *loans) abandon(to []umem.Frame) []umem.Frame {
	for ; l.next != l.whole; l.held-- {
		l.next--
		f := l.out[l.next&l.mask]
		f.Options = 0
		to = append(to, f)
	}
	return to
}

// collect takes what the program has returned.
func (l *loans) collect(to []umem.Frame) []umem.Frame {
	for came := l.came.Load(); l.taken != came; l.taken++ {
		to = append(to, l.back[l.taken&l.mask])
		l.held--
	}
	return to
}

func (l *loans) publish() {
	if l.tail.Load() != l.whole {
		l.tail.Store(l.whole)
	}
}

// Loaned takes frames that messages arrived in, in the order of their completions: of each as many as have More set,
// and one that has not; of a message of no bytes none. They are the program's until Return.
func (q *QueuePair) Loaned(dst []umem.Frame) int {
	if q.loans == nil {
		return 0
	}
	l := q.loans
	head := l.head.Load()
	n := min(int(l.tail.Load()-head), len(dst))
	for i := range dst[:n] {
		dst[i] = l.out[(head+uint32(i))&l.mask]
	}
	l.head.Store(head + uint32(n))
	return n
}

// Return ends loans of frames that Loaned gave, in any order. It panics when there are more than were lent.
func (q *QueuePair) Return(frames []umem.Frame) {
	l := q.loans
	came, n := l.came.Load(), uint32(len(frames))
	if l.head.Load()-came < n {
		panic("transport: more frames returned than were on loan")
	}
	for i, f := range frames {
		f.Options = 0
		l.back[(came+uint32(i))&l.mask] = f
	}
	l.came.Store(came + n)
	q.engine.ring(q.slot)
}

// recall takes back what the program has not taken, for a queue pair that goes. The program is at rest.
func (l *loans) recall(to []umem.Frame) []umem.Frame {
	to = l.collect(l.abandon(to))
	for head := l.head.Load(); head != l.whole; head++ {
		f := l.out[head&l.mask]
		f.Options = 0
		to = append(to, f)
		l.held--
	}
	l.head.Store(l.whole)
	return to
}

// firstAddr is where the first byte of the message that came in lies; 0 of one without any.
func (l *loans) firstAddr() uint64 {
	if l.coming() == 0 {
		return 0
	}
	return l.out[l.whole&l.mask].Addr
}
