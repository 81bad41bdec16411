package replica

import (
	"errors"
	"io"
	"slices"
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

// TestWaysProbe: a probe that ends after records have come over its path changes nothing of it, whatever it has found.
func TestWaysProbe(t *testing.T) {
	now := time.Unix(1000, 0)
	w := newWays(2)
	w.leaves(0, io.EOF, now)
	w.clear(0)
	w.takes(0, now)
	w.clear(0)
	w.unreached(0, io.EOF, now)
	if s := w.states()[0]; s.State != pathConnected || s.Failures != 1 {
		t.Errorf("the path that records come over is %+v", s)
	}
	w.unreached(1, io.EOF, now)
	if s := w.states()[1]; s.State != pathFailed || s.Failures != 1 {
		t.Errorf("the other path is %+v", s)
	}
}

// TestWaysPrefer: the path that is preferred comes first, then those after it, and then those before it.
func TestWaysPrefer(t *testing.T) {
	w, now, broken := newWays(3), time.Now(), errors.New("broken")
	w.prefer(1)
	for _, want := range []int{1, 2, 0} {
		if got := w.choose(1, now); got != want {
			t.Fatalf("path %d is chosen, and not %d: %+v", got, want, w.all)
		}
		w.takes(want, now)
		w.leaves(want, broken, now)
		now = now.Add(time.Millisecond)
	}
	if got := w.choose(1, now); got != 1 {
		t.Errorf("path %d is chosen when all have failed, and not the first that may be tried", got)
	}
	now = now.Add(leastPathWait)
	for path, want := range []int{1, -1, 1} {
		if got, ok := w.better(path, now); ok != (want >= 0) || ok && got != want {
			t.Errorf("path %d (%v) is better than path %d", got, ok, path)
		}
	}
	w.leaves(1, broken, now)
	if got, ok := w.better(0, now); !ok || got != 2 {
		t.Errorf("path %d (%v) is better than path 0 when path 1 has failed", got, ok)
	}
	if s := w.states(); s[0].Number != 1 || s[1].Number != 2 || s[2].Number != 0 || s[0].Failures != 2 {
		t.Errorf("the paths in the order of preference: %+v", s)
	}
}

// TestPreferredPaths: the followers of each leader are spread over the paths as evenly as possible, and witnesses do not
// count.
func TestPreferredPaths(t *testing.T) {
	for paths := 1; paths <= 4; paths++ {
		for members := uint32(3); members <= 7; members++ {
			for leader := uint32(1); leader <= members; leader++ {
				peers := map[uint32]Peer{100: {Witness: true}, 0: {Witness: true}}
				for i := range members {
					peers[2*i+1] = Peer{}
				}
				uses := make([]int, paths)
				for i := range members {
					d := &Driver{config: DriverConfig{Self: 2*i + 1, Spread: true, Links: &Links{paths: make([]*lane, paths)}}}
					d.peers.Store(&peers)
					if d.config.Self != 2*leader-1 {
						uses[d.preferred(2*leader-1)]++
					}
					if d.config.Spread = false; d.preferred(2*leader-1) != 0 {
						t.Error("with standby the first path is not preferred")
					}
				}
				if slices.Max(uses)-slices.Min(uses) > 1 {
					t.Errorf("of %d members and %d paths, the followers of member %d use %v", members, paths, leader, uses)
				}
			}
		}
	}
}
