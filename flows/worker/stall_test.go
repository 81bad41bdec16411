package worker

import (
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestAbsences: a stall counts from 20 ms on, without the time that the worker was set to wait.
func TestAbsences(t *testing.T) {
	var a stalls
	now := time.Unix(1000, 0)
	a.restart(now)
	for _, step := range []struct {
		after, set time.Duration
		want       status.Stall
	}{
		{time.Millisecond, 0, status.Stall{Count: 0, Longest: time.Millisecond}},
		{19 * time.Millisecond, 0, status.Stall{Count: 0, Longest: 19 * time.Millisecond}},
		{30 * time.Millisecond, 15 * time.Millisecond, status.Stall{Count: 0, Longest: 19 * time.Millisecond}},
		{20 * time.Millisecond, 0, status.Stall{Count: 1, Longest: 20 * time.Millisecond}},
		{time.Second, time.Millisecond, status.Stall{Count: 2, Longest: 999 * time.Millisecond}},
		{50 * time.Millisecond, 0, status.Stall{Count: 3, Longest: 999 * time.Millisecond}},
	} {
		now = now.Add(step.after)
		if a.note(now, step.set); a.status() != step.want {
			t.Errorf("after %v more: %+v, want %+v", step.after, a.status(), step.want)
		}
	}
	a.restart(now.Add(time.Hour))
	if a.note(now.Add(time.Hour), 0); a.status().Count != 3 {
		t.Errorf("a wait for something to do counts: %+v", a.status())
	}
	if n := testing.AllocsPerRun(100, func() { a.note(now, 0) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestWorkerAbsent: a worker that could not poll its flows reports for how long, with every way of
// waiting.
func TestWorkerAbsent(t *testing.T) {
	for _, wait := range []config.Wait{config.WaitSleep, config.WaitSpin} {
		c := config.NewWorker("w")
		c.Wait = wait
		w, err := New(c, nil)
		testenv.Must(t, err)
		if err := w.Do(func() error { time.Sleep(60 * time.Millisecond); return nil }); err != nil {
			t.Error(err)
		}
		testenv.Wait(t, 10*time.Second, string(wait)+" to be counted", func() bool {
			s := w.Status().Away
			return s.Count > 0 && s.Longest >= 60*time.Millisecond
		})
		testenv.Check(t, w.Close())
	}
}

// TestTimeSlice: a busy worker yields before the end of its quantum, however often it checks; a
// worker with long waits between rounds never yields.
func TestTimeSlice(t *testing.T) {
	for every, want := range map[time.Duration]int{
		time.Microsecond: 125, time.Millisecond: 125, 3 * time.Millisecond: 111, maxQuantum: 0, 100 * time.Millisecond: 0,
	} {
		now := time.Now()
		s := quantum{last: now, started: now}
		yields, last, longest := 0, now, time.Duration(0)
		for end := now.Add(time.Second); now.Before(end); {
			now = now.Add(every)
			if s.begin(now); s.expired() {
				yields++
				longest = max(longest, now.Sub(last))
				last = now
			}
		}
		if yields < want-1 || yields > want+1 || longest >= 10*time.Millisecond {
			t.Errorf("every %v: %d yields in a second, %v at most between them; about %d wanted, and less than 10ms", every, yields, longest, want)
		}
	}
}

// TestTimeSliceOverdue: a worker that had no time to wait yields the first time that it has.
func TestTimeSliceOverdue(t *testing.T) {
	now := time.Now()
	s := quantum{last: now, started: now}
	for range 50 {
		now = now.Add(time.Millisecond)
		s.begin(now)
	}
	if !s.expired() {
		t.Error("it does not yield after 50 ms of rounds without a wait")
	}
	if s.expired() {
		t.Error("it yields twice")
	}
}
