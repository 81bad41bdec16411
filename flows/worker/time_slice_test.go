package worker

import (
	"testing"
	"time"
)

// TestTimeSlice: a worker that is busy yields before its time slice ends, however often it looks, and one that waits long between rounds never.
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

// TestTimeSliceOverdue: a worker that had no time to wait yields the first time it has.
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
