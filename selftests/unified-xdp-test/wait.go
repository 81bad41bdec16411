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

// longest is the most a worker waits before it looks whether it is to stop. It is
// below a second.
const longest = 100 * time.Millisecond

// waiter waits as one worker was told to.
type waiter struct {
	how   wait
	sleep time.Duration
	set   []unix.PollFd // of the ports that receive
	waits uint64
}

// wait waits for at most limit, which is above zero and no more than longest.
func (w *waiter) wait(limit time.Duration) {
	switch w.how {
	case waitSpin:
		return
	case waitSleep:
		limit = min(limit, w.sleep)
	}
	w.waits++
	pollOrNap(w.set, limit)
}
