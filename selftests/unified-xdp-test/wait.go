package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// wait is the way a worker waits when its ports have nothing to do.
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

// longest is the longest timed wait of a worker. It is below a second.
const longest = 100 * time.Millisecond

// forever means a wait until a port becomes readable: a wait without a timeout costs the kernel no
// timer. To stop a worker in such a wait, something must wake it (job.end).
const forever = time.Duration(1<<63 - 1)

// waiter waits in the way that the options select.
type waiter struct {
	how   wait
	sleep time.Duration
	set   []unix.PollFd // of the ports that receive
	waits uint64
}

// wait waits for at most limit, which is above zero and either at most longest, or forever.
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
