package transport

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/unifiedd/unifiedd/internal/release"
	"github.com/unifiedd/unifiedd/rdma"
)

// ErrOverrun is a completion queue that was too small: completions were lost, and the queue pairs they were of
// are in error.
var ErrOverrun = errors.New("completions were lost: the completion queue must be as deep as all queues it serves together")

// CompletionQueue is a ring of completions: one engine puts them in, one thread of the program's
// polls them.
type CompletionQueue struct {
	ring  []rdma.WorkCompletion // written by the engine
	mask  uint32
	depth uint32
	_     line
	tail  atomic.Uint32 // written by the engine: one past the last completion
	next  uint32        // the engine's own: tail with what is not published
	known uint32        // the engine's own: head as it was last read
	loud  bool          // the engine's own: one that wakes those that wait for solicited ones is among them
	dirty bool          // the engine's own: there is something to publish
	_     line
	head  atomic.Uint32 // written by the program: the next completion to be polled
	armed atomic.Uint32 // set by the program, cleared by the engine
	over  atomic.Bool   // set by the engine: completions were lost
	_     line
}

// What a completion queue is armed for.
const (
	idle uint32 = iota
	anyCompletion
	solicitedCompletion
)

// NewCompletionQueue makes a queue for depth completions.
func NewCompletionQueue(depth int) (*CompletionQueue, error) {
	if depth < 1 || depth > MaxCompletions {
		return nil, fmt.Errorf("make a completion queue for %d: it can have 1 to %d", depth, MaxCompletions)
	}
	n := roundUp(depth)
	return &CompletionQueue{ring: make([]rdma.WorkCompletion, n), mask: uint32(n - 1), depth: uint32(n)}, nil
}

// Depth is how many completions it has room for.
func (c *CompletionQueue) Depth() int { return int(c.depth) }

// Poll takes completions and returns how many there were. It does not block or allocate. The
// error is ErrOverrun, when the last that were not lost are taken.
func (c *CompletionQueue) Poll(dst []rdma.WorkCompletion) (int, error) {
	head := c.head.Load()
	n := min(int(c.tail.Load()-head), len(dst))
	if n == 0 {
		return 0, c.lost(len(dst))
	}
	at := int(head & c.mask)
	if n == 1 {
		dst[0] = c.ring[at]
	} else {
		first := copy(dst[:n], c.ring[at:])
		copy(dst[first:n], c.ring)
	}
	release.Store32(&c.head, head+uint32(n))
	return n, nil
}

// Empty says whether Poll would find nothing. It is asked by the thread that polls.
func (c *CompletionQueue) Empty() bool { return c.tail.Load() == c.head.Load() && !c.over.Load() }

func (c *CompletionQueue) lost(wanted int) error {
	if wanted != 0 && c.over.Load() {
		return ErrOverrun
	}
	return nil
}

// Arm asks for one wake at the next completion, or at the next that is solicited or failed. What is there already
// gives none: poll again after it.
func (c *CompletionQueue) Arm(solicited bool) {
	if solicited {
		c.armed.CompareAndSwap(idle, solicitedCompletion) // one for any is not taken back
		return
	}
	c.armed.Store(anyCompletion)
}

// Armed says whether a completion that comes, or one that is solicited, is to be told of.
func (c *CompletionQueue) Armed() bool { return c.armed.Load() != idle }

// room says whether there is room for n more.
func (c *CompletionQueue) room(n uint32) bool {
	if c.next-c.known+n <= c.depth {
		return true
	}
	c.known = c.head.Load()
	return c.next-c.known+n <= c.depth
}

// put puts in a completion, and says whether there was room.
func (c *CompletionQueue) put(w *rdma.WorkCompletion, solicited bool) bool {
	if !c.room(1) {
		return false
	}
	c.ring[c.next&c.mask] = *w
	c.next++
	c.loud = c.loud || solicited || w.Status != rdma.Success
	return true
}

// show shows what was put in, to a program that polls. Whether one waits to be woken publish says: it loads what Arm stores, with a
// barrier between that and its own store, which takes until all that was written before has reached its cache.
func (c *CompletionQueue) show() { release.Store32(&c.tail, c.next) }

// publish shows what was put in, and says whether somebody is to be woken.
func (c *CompletionQueue) publish() bool {
	c.tail.Store(c.next)
	armed, loud := c.armed.Load(), c.loud
	c.loud, c.dirty = false, false
	if armed == idle || armed == solicitedCompletion && !loud {
		return false
	}
	return c.armed.CompareAndSwap(armed, idle)
}
