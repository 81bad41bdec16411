package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// The ways in which a worker waits when its ports have nothing to do.
const (
	waitSpin  = "spin"
	waitSleep = "sleep"
	waitPoll  = "poll"
)

// longest is the longest timed wait of a worker. It is below a second.
const longest = 100 * time.Millisecond

// forever means a wait until a port becomes readable: a wait without a timeout costs the kernel no
// timer. To stop a worker in such a wait, something must wake it (job.end).
const forever = time.Duration(1<<63 - 1)

// waiter waits in the way that the options select.
type waiter struct {
	how   string
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
