package replica

import (
	"context"
	"errors"
	"sync"
	"time"
)

// PathState is what a member knows of a path over which a leader's records come.
type PathState struct {
	Number      int    // of the path; 0 is the first in the configuration
	State       string // connected, standby or failed
	Error       string // why it failed
	Connections uint64 // times that it was taken
	Failures    uint64 // links that failed, and failed attempts
	Taken, Left time.Time
}

// ways are the paths to the leader. Any goroutine may call the methods.
type ways struct {
	mu     sync.Mutex
	member uint32 // the leader
	first  int    // the path that is preferred. The others follow in order, and then those before it
	all    []way
}

// way is a path.
type way struct {
	PathState
	again time.Time     // when it may be tried again; zero: at any time
	wait  time.Duration // the last wait
}

// The states of a path.
const (
	pathConnected = "connected"
	pathStandby   = "standby"
	pathFailed    = "failed"
)

func newWays(paths int) *ways {
	w := &ways{all: make([]way, paths)}
	for i := range w.all {
		w.all[i].Number, w.all[i].State = i, pathStandby
	}
	return w
}

// place returns the path at a place in the order of preference.
func (w *ways) place(i int) (path int) { return (w.first + i) % len(w.all) }

// prefer says which path is preferred.
func (w *ways) prefer(first int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.first = first
}

// choose returns the first path that may be tried, or else the one that may be tried next. With another leader all may.
func (w *ways) choose(member uint32, now time.Time) (path int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	path = w.first
	if w.member != member {
		w.member = member
		for i := range w.all {
			w.all[i].again, w.all[i].wait = time.Time{}, 0
		}
	}
	for i := range w.all {
		one := w.place(i)
		if !w.all[one].again.After(now) {
			return one
		}
		if w.all[one].again.Before(w.all[path].again) {
			path = one
		}
	}
	return path
}

// takes says that records come over a path.
func (w *ways) takes(path int, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := &w.all[path]
	one.State, one.Error, one.Taken = pathConnected, "", now
	one.Connections++
}

// leaves says that records do not come over a path any more, and why.
func (w *ways) leaves(path int, cause error, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all[path].left(cause, now)
}

// unreached says that a probe over a path has failed, and why. Records may come over the path meanwhile: an earlier probe
// may have found it well.
func (w *ways) unreached(path int, cause error, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one := &w.all[path]; one.State != pathConnected {
		one.left(cause, now)
	}
}

// left says that records do not come over the path, and why.
func (one *way) left(cause error, now time.Time) {
	if one.State == pathConnected {
		one.Left = now
		if now.Sub(one.Taken) > steady {
			one.wait = 0
		}
	}
	if one.State = pathStandby; !fails(cause) {
		return
	}
	one.State, one.Error = pathFailed, cause.Error()
	one.Failures++
	one.wait = min(max(leastPathWait, 2*one.wait), mostPathWait)
	one.again = now.Add(one.wait)
}

// fails reports whether a path has failed that was left for a reason. It has not if another one is better, the leader
// has ended the link, or this member does not want it any more.
func fails(cause error) bool {
	_, left := errors.AsType[*leftError](cause)
	return !left && !errors.Is(cause, errBetterPath) && !errors.Is(cause, errEpoch) && !errors.Is(cause, errFenced) && !errors.Is(cause, context.Canceled)
}

// clear says that a path may be tried, unless records come over it already.
func (w *ways) clear(path int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := &w.all[path]
	if one.again = (time.Time{}); one.State != pathConnected {
		one.State = pathStandby
	}
}

// better returns the first path that is preferred to the present one and may be tried again.
func (w *ways) better(path int, now time.Time) (better int, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.all {
		one := w.place(i)
		if one == path {
			break
		}
		if !w.all[one].again.After(now) {
			return one, true
		}
	}
	return 0, false
}

// allFailed reports whether no path may be tried now.
func (w *ways) allFailed(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.all {
		if !w.all[i].again.After(now) {
			return false
		}
	}
	return true
}

// states returns what is known of the paths, in the order of preference; nil: there is one.
func (w *ways) states() (all []PathState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.all {
		if one := w.place(i); len(w.all) > 1 {
			all = append(all, w.all[one].PathState)
		}
	}
	return all
}
