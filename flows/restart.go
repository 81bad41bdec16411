package flows

import (
	"fmt"
	"sync"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
)

// Times of a flow that starts again by itself. The time between two attempts doubles from firstAgain to lastAgain. It is
// firstAgain again for a flow that has run for steadyAfter.
const (
	firstAgain  = 100 * time.Millisecond
	lastAgain   = 5 * time.Second
	steadyAfter = 10 * time.Second
)

// retry is a flow's attempt to start again. It ends when the flow runs, or when somebody starts or stops the flow.
type retry struct {
	once sync.Once
	quit chan struct{} // closed to end it
	done chan struct{} // closed when it has ended
	next time.Time     // under Flow.mu: the next attempt
}

// restarts reports whether the flow starts again after a failure while it ran: what has failed may come back. A replay
// would send its packets a second time.
func (f *Flow) restarts() bool {
	return f.restart && f.config.Restart == config.RestartOnFailure && f.config.Kind() != config.KindStorageNetwork
}

// startAgain makes the flow start again, unless somebody has stopped it. cause is why it has ended, if that is a failure.
// before is the position before which its log must end; 0: it ends where it ends.
func (f *Flow) startAgain(cause error, before uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopping.Load() || f.again != nil {
		return
	}
	f.again = &retry{quit: make(chan struct{}), done: make(chan struct{})}
	go f.retry(f.again, cause, before)
}

// retry runs on a goroutine of its own.
func (f *Flow) retry(r *retry, cause error, before uint64) {
	defer close(r.done)
	said, at := "", cause == nil // at once if nothing has failed
	for ; ; at = false {
		wait := time.Duration(0)
		if !at {
			wait = f.nextWait(r)
		}
		t := time.NewTimer(wait)
		select {
		case <-r.quit:
			t.Stop()
			return
		case <-t.C:
		}
		over, err := f.tryAgain(r, cause, before)
		if over {
			return
		}
		if err.Error() != said {
			said = err.Error()
			f.log.Warn("the flow does not start again yet: it is tried again", "err", err)
		}
	}
}

// nextWait returns the time until the next attempt.
func (f *Flow) nextWait(r *retry) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	wait := max(f.wait, firstAgain)
	f.wait = min(2*wait, lastAgain)
	r.next = time.Now().Add(wait)
	return wait
}

// tryAgain starts the flow, unless that is not wanted any more.
func (f *Flow) tryAgain(r *retry, cause error, before uint64) (over bool, err error) {
	f.starting.Lock()
	defer f.starting.Unlock()
	f.mu.Lock()
	over = f.again != r || f.run != nil || f.stopping.Load() || f.leaving.Load()
	f.mu.Unlock()
	if !over {
		f.before = before
		if err = f.start(); err != nil {
			if cause != nil {
				f.setState(status.Failed, fmt.Errorf("%w\nit does not start again yet: %w", cause, err))
			}
			return false, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.again == r {
		f.again = nil
		if !over {
			f.begun++
		}
	}
	return true, nil
}

// endRetry ends the attempts to start the flow again, and reports whether there were any. f.starting must not be held.
func (f *Flow) endRetry() bool {
	f.mu.Lock()
	r := f.again
	f.again, f.wait = nil, 0
	f.mu.Unlock()
	if r == nil {
		return false
	}
	r.once.Do(func() { close(r.quit) })
	<-r.done
	return true
}

// afterEnd makes a flow start again that has failed while it ran.
func (f *Flow) afterEnd() {
	f.mu.Lock()
	state, err := f.state, f.err
	f.mu.Unlock()
	if state == status.Failed && f.restarts() {
		f.startAgain(err, 0)
	}
}
