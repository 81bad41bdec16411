package transport

import (
	"sync/atomic"

	"github.com/unifiedd/unifiedd/internal/align"
	"github.com/unifiedd/unifiedd/umem"
)

// loans are the frames of received messages that are on loan to the program. There are two rings,
// each with as many places as frames may be on loan, so neither is ever full.
type loans struct {
	out   []umem.Frame // to the program
	back  []umem.Frame // from it
	mask  uint32
	limit uint32
	_     line
	tail  atomic.Uint32 // written by the engine: one past the last frame of the last complete message
	next  uint32        // engine only: whole plus the frames of the current message
	whole uint32        // engine only: tail plus what is not published
	held  uint32        // engine only: frames on loan and of the current message
	taken uint32        // engine only: the next returned frame
	_     line
	head  atomic.Uint32 // written by the program: the next frame it takes
	came  atomic.Uint32 // written by the program: one past the last it returned
	_     line
}

func newLoans(limit int) *loans {
	n := align.PowerOfTwo(limit)
	return &loans{out: make([]umem.Frame, n), back: make([]umem.Frame, n), mask: uint32(n - 1), limit: uint32(limit)}
}

// room reports whether n more frames can be lent.
func (l *loans) room(n int) bool { return uint64(l.held)+uint64(n) <= uint64(l.limit) }

// lend adds frames of the current message. last reports whether they are its last.
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

// coming returns how many frames the current message has.
func (l *loans) coming() uint32 { return l.next - l.whole }

// deliver completes the current message.
func (l *loans) deliver() { l.whole = l.next }

// abandon takes back the frames of the current message, which will not be completed.
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

// Loaned takes frames of received messages, in the order of their completions. All frames of a
// message but the last have More set. A message without payload has none. They are the program's
// until Return.
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

// Return ends the loan of frames that Loaned returned, in any order. It panics if they are more
// than are on loan.
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

// recall takes back the frames that the program has not taken, when the queue pair is closed. The
// program must not use the queue pair at the same time.
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

// firstAddr returns the address of the first byte of the current message; 0 if it has none.
func (l *loans) firstAddr() uint64 {
	if l.coming() == 0 {
		return 0
	}
	return l.out[l.whole&l.mask].Addr
}
