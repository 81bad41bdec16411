package flows

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/unifiedd/unifiedd/nvme"
)

// diagnose adds to the error that ended a flow what is known of its disk, and what to do.
// It waits a while for the kernel to know, and so is not for the worker.
func (o *output) diagnose(err error) error {
	sick := o.sick.Load()
	if sick == nil {
		return err
	}
	why := sick.Health()
	for end := time.Now().Add(insight); why == nil && time.Now().Before(end); why = sick.Health() {
		time.Sleep(glance)
	}
	for _, status := range slices.Sorted(maps.Keys(o.queue.Stats().Statuses)) {
		err = fmt.Errorf("%w: %w", err, status)
	}
	if why != nil && !errors.Is(err, errors.Unwrap(why)) {
		err = fmt.Errorf("%w: %w", err, why)
	}
	return fmt.Errorf("%w (see the kernel's log; once the disk is mended, start the flow again)", err)
}

// insight is how long the kernel may take from the first operation that fails until it
// says that a disk is gone.
const insight = 500 * time.Millisecond

// silence notices a disk that has operations and completes none of them.
type silence struct {
	done  uint64 // operations completed, when last something had changed
	since time.Time
}

// speechless is how long a disk may complete nothing before that is said. Disks answer
// within milliseconds, and the kernel gives up on them after 30 s.
const speechless = 5 * time.Second

// look says what is wrong with a disk that has been silent for too long.
func (s *silence) look(now time.Time, to, meanwhile string, st nvme.Stats) error {
	done := st.Reads + st.Writes + st.Flushes
	if st.InFlight == 0 || done != s.done || s.since.IsZero() {
		s.done, s.since = done, now
	}
	quiet := now.Sub(s.since)
	if quiet < speechless {
		return nil
	}
	return fmt.Errorf("%s has completed nothing for %v and has %d operations to do (the kernel's log may say more; until it answers %s)",
		to, quiet.Round(time.Second), st.InFlight, meanwhile)
}
