package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// silence is how long nothing may complete before the program warns the user. Disks answer within
// milliseconds; the kernel gives up on a request after 30 s.
const silence = 5 * time.Second

// watch writes a warning to w when nothing has completed for a while, since the loop itself sleeps
// until something does. The caller calls stop, which waits for the watcher to end.
func (l *loader) watch(w io.Writer, silence time.Duration) (stop func()) {
	quit := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(silence)
		defer tick.Stop()
		last := l.completed()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			now := l.completed()
			if now == last {
				fmt.Fprintf(w, "unified-nvme-test: %s has completed nothing for %v (a second interrupt ends the program at once)\n", l.target.Path(), silence)
			}
			last = now
		}
	})
	return func() { close(quit); done.Wait() }
}

// completed returns the number of operations that have completed so far.
func (l *loader) completed() uint64 {
	s := l.queue.Stats()
	return s.Reads + s.Writes
}
