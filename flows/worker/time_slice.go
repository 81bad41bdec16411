package worker

import "time"

// timeSlice is for how long a worker's thread has gone on without letting the Go scheduler run others. After 10 ms that asks for its turn by a signal. Until it
// has it, its monitor takes the processor from the thread in whatever system call or C function it is seen in, wakes another for it that finds nothing to
// do, and looks again every 20 µs for a while (retake in runtime/proc.go): which costs a worker that waits a thousand times a second more than all
// it does. One that yields in time is left alone. A worker that hardly has anything to do is not to yield: its processor is best taken at once, so that the
// monitor sleeps too.
type quantum struct{ started, last time.Time }

// slice is less than the scheduler's time slice (forcePreemptNS).
const maxQuantum = 8 * time.Millisecond

// look begins a round, and a time slice if the round before was long ago.
func (s *quantum) begin(now time.Time) {
	if now.Sub(s.last) >= maxQuantum {
		s.started = now
	}
	s.last = now
}

// over reports whether it is time to yield, and begins a time slice if so.
func (s *quantum) expired() bool {
	if s.last.Sub(s.started) < maxQuantum {
		return false
	}
	s.started = s.last
	return true
}
