package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// wait is how a worker waits when its ports have nothing to do.
type wait string

const (
	waitSpin  wait = "spin"
	waitSleep wait = "sleep"
	waitPoll  wait = "poll"
)

func (w *wait) String() string { return string(*w) }

func (w *wait) Set(text string) error {
	switch wait(text) {
	case waitSpin, waitSleep, waitPoll:
		*w = wait(text)
		return nil
	}
	return fmt.Errorf("want %s, %s or %s", waitSpin, waitSleep, waitPoll)
}

// longest is the most a worker waits for a time. It is below a second.
const longest = 100 * time.Millisecond

// forever is until a port can be read: a wait without a time costs the kernel no
// timer. A worker that waits so is woken to stop (job.end).
const forever = time.Duration(1<<63 - 1)

// waiter waits as the worker was told.
type waiter struct {
	how   wait
	sleep time.Duration
	set   []unix.PollFd // of the ports that receive
	waits uint64
}

// wait waits for at most limit, which is above zero: no more than longest, or
// forever.
func (w *waiter) wait(limit time.Duration) {
	if w.how == waitSpin {
		return
	}
	w.waits++
	switch {
	case w.how == waitSleep:
		pollOrNap(w.set, min(limit, w.sleep))
	case limit == forever && len(w.set) > 0:
		pollForever(w.set)
	default:
		pollOrNap(w.set, min(limit, longest))
	}
}
