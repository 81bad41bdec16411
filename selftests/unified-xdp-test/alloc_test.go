package main

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// ready opens a session at an end, and its job.
func ready(t *testing.T, e *testenv.End, args ...string) *job {
	t.Helper()
	o, err := parse(append(args, ring, e.Ifname), t.Output())
	testenv.Must(t, err)
	var s *session
	e.Do(t, func() { s, err = open(o) })
	testenv.Must(t, err)
	t.Cleanup(func() {
		if err := s.cleanup.Close(); err != nil {
			t.Error(err)
		}
	})
	j, err := newJob(s)
	if err == nil {
		err = s.iface.Start()
	}
	testenv.Must(t, err)
	return j
}

// TestNoAllocations: sending, echoing and receiving does not allocate.
func TestNoAllocations(t *testing.T) {
	testenv.Leaks(t)
	pair := newPair(t, testenv.PairOptions{})
	for _, mode := range []string{"-rx", "-echo"} {
		to, from := ready(t, &pair.B, mode), ready(t, &pair.A, "-tx")
		turn := func() {
			for _, j := range []*job{from, to} {
				if _, err := j.workers[0].round(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n := testenv.AllocsPerRun(t, 200, turn); n != 0 {
			t.Errorf("%s: %v allocations a round", mode, n)
		}
		if moved := to.moved(); moved < 100*batch {
			t.Errorf("%s: only %d packets moved", mode, moved)
		}
		if err := to.session.iface.Close(); err != nil {
			t.Error(err)
		}
		if err := from.session.iface.Close(); err != nil {
			t.Error(err)
		}
	}
}
