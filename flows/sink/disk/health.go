package disk

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// diagnose adds to the error that ended the flow what the kernel reports about the disk, and a
// remedy. It waits for the kernel, so the worker must not call it.
func (o *segmentWriter) diagnose(err error) error {
	failed := o.failedTarget.Load()
	if failed == nil {
		return err
	}
	why := failed.Health()
	for end := time.Now().Add(healthWait); why == nil && time.Now().Before(end); why = failed.Health() {
		time.Sleep(healthPoll)
	}
	for _, status := range slices.Sorted(maps.Keys(o.queue.Stats().Statuses)) {
		err = fmt.Errorf("%w: %w", err, status)
	}
	if why != nil && !errors.Is(err, errors.Unwrap(why)) {
		err = fmt.Errorf("%w: %w", err, why)
	}
	return fmt.Errorf("%w (see the kernel's log; once the disk is repaired, start the flow again)", err)
}

const (
	// healthWait is how long the kernel may take from the first failed operation until it reports that
	// a disk is gone.
	healthWait = 500 * time.Millisecond
	// healthPoll is the time between two checks for that report.
	healthPoll = 50 * time.Millisecond
)
