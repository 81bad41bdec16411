package pipeline

import (
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/nvme"
)

// silence notices a disk that has operations and completes none of them.
type Health struct {
	completed uint64 // operations completed, when last something had changed
	changed   time.Time
}

// speechless is how long a disk may complete nothing before that is said. Disks answer
// within milliseconds, and the kernel gives up on them after 30 s.
const stallTimeout = 5 * time.Second

// look says what is wrong with a disk that has been silent for too long.
func (s *Health) Check(now time.Time, to, meanwhile string, st nvme.Stats) error {
	done := st.Reads + st.Writes + st.Flushes
	if st.InFlight == 0 || done != s.completed || s.changed.IsZero() {
		s.completed, s.changed = done, now
	}
	quiet := now.Sub(s.changed)
	if quiet < stallTimeout {
		return nil
	}
	return fmt.Errorf("%s has completed nothing for %v and has %d operations to do (the kernel's log may say more; until it answers %s)",
		to, quiet.Round(time.Second), st.InFlight, meanwhile)
}
