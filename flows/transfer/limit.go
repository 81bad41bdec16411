package transfer

import "time"

// limiter spreads bytes over time. It belongs to one thread. The zero value does not limit.
type limiter struct {
	rate float64 // bytes in a second; 0: no limit
	next time.Time
}

// Sizes of the parts in which a limited sender writes pieces: a hundredth of a second's bytes.
const (
	leastPart = 64 << 10
	partsRate = 100
)

// part returns how many bytes to write at once, of at most most.
func (l *limiter) part(most uint64) uint64 {
	if l.rate == 0 {
		return most
	}
	return min(max(uint64(l.rate/partsRate)&^(blockSize-1), leastPart), most)
}

// wait returns for how long nothing may be written.
func (l *limiter) wait(now time.Time) time.Duration {
	if l.rate == 0 {
		return 0
	}
	return l.next.Sub(now)
}

// took counts bytes that were written. What was not used of the time before is lost, but for a moment.
func (l *limiter) took(n uint64, now time.Time) {
	if l.rate == 0 {
		return
	}
	const moment = 20 * time.Millisecond
	if late := now.Add(-moment); l.next.Before(late) {
		l.next = late
	}
	l.next = l.next.Add(time.Duration(float64(n) / l.rate * float64(time.Second)))
}
