package pipeline

import (
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/nvme"
)

// Health detects a disk that has operations and completes none.
type Health struct {
	completed uint64    // operations, at the last change
	changed   time.Time // when that was
}

// stallTimeout is how long a disk may complete nothing before the flow reports it. Disks answer
// within milliseconds, and the kernel gives up on them after 30 s.
const stallTimeout = 5 * time.Second

// SilentError is the error of a disk that has operations to do and completes none.
type SilentError struct {
	Disk       string
	Quiet      time.Duration
	Operations uint64 // in flight
	Meanwhile  string // what happens in the flow until the disk answers
}

func (e *SilentError) Error() string {
	return fmt.Sprintf("%s has completed nothing for %v and has %d operations to do (the kernel's log may say more; until it answers %s)",
		e.Disk, e.Quiet.Round(time.Second), e.Operations, e.Meanwhile)
}

// Check returns an error for a disk that has been silent for too long. meanwhile says what happens in the
// flow until the disk answers.
func (s *Health) Check(now time.Time, to, meanwhile string, st nvme.Stats) error {
	done := st.Reads + st.Writes + st.Flushes
	if st.InFlight == 0 || done != s.completed || s.changed.IsZero() {
		s.completed, s.changed = done, now
	}
	quiet := now.Sub(s.changed)
	if quiet < stallTimeout {
		return nil
	}
	return &SilentError{to, quiet, uint64(st.InFlight), meanwhile}
}
