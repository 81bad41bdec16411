package transport

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/unifiedd/unifiedd/internal/align"
	"github.com/unifiedd/unifiedd/internal/release"
	"github.com/unifiedd/unifiedd/rdma"
)

// errOverrun means that a completion queue was too small. Completions were lost, and their queue
// pairs are in Error.
var errOverrun = errors.New("completions were lost: the completion queue must be as deep as all queues it serves together")

// CompletionQueue is a ring of completions. One engine writes them, one thread of the program polls
// them.
type CompletionQueue struct {
	ring  []rdma.WorkCompletion // written by the engine
	mask  uint32
	depth uint32
	_     line
	tail  atomic.Uint32 // written by the engine: one past the last completion
	next  uint32        // engine only: tail plus what is not published
	known uint32        // engine only: head as last read
	loud  bool          // engine only: an unpublished completion is solicited or an error
	dirty bool          // engine only: there is something to publish
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
	n := align.PowerOfTwo(depth)
	return &CompletionQueue{ring: make([]rdma.WorkCompletion, n), mask: uint32(n - 1), depth: uint32(n)}, nil
}

// Depth returns how many completions the queue has room for.
func (c *CompletionQueue) Depth() int { return int(c.depth) }

// Poll takes completions and returns their number. It does not block or allocate. If the
// queue has overrun, it returns an error after the last completion that was not lost.
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

// Empty reports whether Poll would return none. Only the thread that polls may call it.
func (c *CompletionQueue) Empty() bool { return c.tail.Load() == c.head.Load() && !c.over.Load() }

func (c *CompletionQueue) lost(wanted int) error {
	if wanted != 0 && c.over.Load() {
		return errOverrun
	}
	return nil
}

// Arm requests one wake-up at the next completion, or at the next that is solicited or an error.
// Completions that are already in the queue cause none: the caller must poll again after Arm.
func (c *CompletionQueue) Arm(solicited bool) {
	if solicited {
		c.armed.CompareAndSwap(idle, solicitedCompletion) // a request for any completion stays
		return
	}
	c.armed.Store(anyCompletion)
}

// Armed reports whether a wake-up is requested.
func (c *CompletionQueue) Armed() bool { return c.armed.Load() != idle }

// room reports whether there is room for n more.
func (c *CompletionQueue) room(n uint32) bool {
	if c.next-c.known+n <= c.depth {
		return true
	}
	c.known = c.head.Load()
	return c.next-c.known+n <= c.depth
}

// put adds a completion, and reports whether there was room.
func (c *CompletionQueue) put(w *rdma.WorkCompletion, solicited bool) bool {
	if !c.room(1) {
		return false
	}
	c.ring[c.next&c.mask] = *w
	c.next++
	c.loud = c.loud || solicited || w.Status != rdma.Success
	return true
}

// show makes completions visible to a program that polls. Unlike publish, it does not check for a
// program that sleeps: that check needs a barrier between the store here and the load of the word
// that Arm stores, and the barrier waits until all earlier stores have reached the cache.
func (c *CompletionQueue) show() { release.Store32(&c.tail, c.next) }

// publish makes completions visible, and reports whether a sleeping program must be woken.
func (c *CompletionQueue) publish() bool {
	c.tail.Store(c.next)
	armed, loud := c.armed.Load(), c.loud
	c.loud, c.dirty = false, false
	if armed == idle || armed == solicitedCompletion && !loud {
		return false
	}
	return c.armed.CompareAndSwap(armed, idle)
}
