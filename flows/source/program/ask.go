package program

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/internal/counter"
)

// question is what the log at the end of a relay has of a session. A relay keeps no messages, so after a start it
// does not know how far a session of a program is.
type question struct {
	mu     sync.Mutex
	ask    func(ctx context.Context, session uint64) (next uint64, err error) // under mu; nil: the sink is not open yet
	closed bool                                                               // under mu: nothing is asked any more
	ctx    context.Context
	going  sync.WaitGroup
	asking atomic.Bool
	said   atomic.Pointer[answer] // not used yet
	failed counter.Counter        // answers that did not come; of the goroutine that asks
}

// answer is the sequence that the log expects next of a session.
type answer struct {
	session, next uint64
	at            time.Time
}

const (
	// askTime is how long one question may take.
	askTime = 5 * time.Second
	// freshAnswer is how old an answer may be that is used.
	freshAnswer = time.Second
)

// AskNext says how a source with Config.Asks learns the sequence that is expected next of a session. ask is called in
// its own goroutine, and not after the flow has ended.
func (s *Source) AskNext(e *pipeline.Env, ask func(ctx context.Context, session uint64) (next uint64, err error)) {
	ctx, cancel := context.WithCancel(context.Background())
	q := s.question
	q.mu.Lock()
	q.ask, q.ctx = ask, ctx
	q.mu.Unlock()
	e.Undo.Add(func() error {
		cancel()
		q.mu.Lock()
		q.closed = true
		q.mu.Unlock()
		q.going.Wait()
		return nil
	})
}

// next returns the answer for a session; 0: there is none yet. It belongs to the worker's thread.
func (q *question) next(session uint64) uint64 {
	if a := q.said.Swap(nil); a != nil && a.session == session && time.Since(a.at) < freshAnswer {
		return a.next
	}
	q.mu.Lock() // held for no longer than this
	defer q.mu.Unlock()
	if q.ask != nil && !q.closed && q.asking.CompareAndSwap(false, true) {
		q.going.Go(func() {
			defer q.asking.Store(false)
			ctx, cancel := context.WithTimeoutCause(q.ctx, askTime, errNoAnswer)
			defer cancel()
			next, err := q.ask(ctx, session)
			if err != nil {
				q.failed.Add(1)
				return
			}
			q.said.Store(&answer{session, next, time.Now()})
		})
	}
	return 0
}

var errNoAnswer = errors.New("nobody who leads the group answers")
