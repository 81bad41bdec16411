package replica

import (
	"errors"
	"io"
	"testing"
	"time"
)

// TestWays: the first path that may be tried is chosen. One that fails is left out for longer each time, unless it was
// well for a while. What is no failure changes nothing, and another leader makes all paths possible.
func TestWays(t *testing.T) {
	now, broken := time.Unix(1000, 0), errors.New("broken")
	w := newWays(3)
	expect := func(path int) {
		t.Helper()
		if got := w.choose(1, now); got != path {
			t.Errorf("path %d is chosen, and not %d: %+v", got, path, w.all)
		}
	}
	expect(0)
	w.takes(0, now)
	for _, cause := range []error{errBetterPath, errEpoch, errFenced, &leftError{io.EOF}} {
		w.leaves(0, cause, now)
		expect(0)
	}
	wait := leastPathWait
	for range 8 { // each time at once after the wait
		w.takes(0, now)
		w.leaves(0, broken, now)
		expect(1)
		if now = now.Add(wait - 1); w.allFailed(now) {
			t.Error("all paths have failed")
		}
		if _, ok := w.better(1, now); ok {
			t.Errorf("the first path may be tried before %v", wait)
		}
		now = now.Add(1)
		if better, ok := w.better(2, now); !ok || better != 0 {
			t.Errorf("the first path may not be tried after %v", wait)
		}
		expect(0)
		wait = min(2*wait, mostPathWait)
	}
	w.takes(0, now)
	now = now.Add(steady + 1)
	w.leaves(0, broken, now)
	now = now.Add(leastPathWait)
	expect(0)
	w.leaves(0, broken, now)
	w.leaves(2, broken, now.Add(-1))
	w.leaves(1, broken, now)
	expect(2) // the next one that may be tried
	if !w.allFailed(now) {
		t.Error("a path has not failed")
	}
	w.clear(1)
	expect(1)
	if w.choose(2, now) != 0 {
		t.Error("with another leader the first path is not chosen")
	}
	if s := w.states()[0]; s.State != pathFailed || s.Error != broken.Error() || s.Connections != 10 || s.Failures != 10 {
		t.Errorf("the first path is %+v", s)
	}
	if newWays(1).states() != nil {
		t.Error("there are states of a single path")
	}
}
