package flows

import "time"

// timeSlice is for how long a worker's thread has gone on without letting the Go scheduler run others. After 10 ms that asks for its turn by a signal. Until it
// has it, its monitor takes the processor from the thread in whatever system call or C function it is seen in, wakes another for it that finds nothing to
// do, and looks again every 20 µs for a while (retake in runtime/proc.go): which costs a worker that waits a thousand times a second more than all
// it does. One that yields in time is left alone. A worker that hardly has anything to do is not to yield: its processor is best taken at once, so that the
// monitor sleeps too.
type timeSlice struct{ begun, looked time.Time }

// slice is less than the scheduler's time slice (forcePreemptNS).
const slice = 8 * time.Millisecond

// over reports whether it is time to yield; now is that of a round after which the worker is about to wait.
func (s *timeSlice) over(now time.Time) bool {
	away := now.Sub(s.looked)
	s.looked = now
	if away < slice && now.Sub(s.begun) < slice {
		return false
	}
	s.begun = now
	return away < slice
}
