package main

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
)

// brief is how long who does something else between looks looks at a queue at a time.
const brief = time.Microsecond

// awaitMany is await for who receives in a test of bandwidth: whenever nothing has come it lets others have the processor,
// of whom the kernel's threads that do the work of a device in software may be some. Who waits for an answer to a single
// message does better to keep it: what the others leave of it comes late. A device that works as the program looks at it gets all
// of it.
func (l *link) awaitMany(q rdma.CompletionQueue) ([]rdma.WorkCompletion, error) {
	if l.progress != nil {
		return l.await(q)
	}
	return l.awaitBetween(q, brief, func() {
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) // sched_yield(2): always succeeds
	})
}

// The sleeps of awaitRoom: the part of the time waited so far, and the bounds. A shorter sleep would cost more than it saves.
const (
	pausePart     = 4
	shortestPause = 50 * time.Microsecond
	longestPause  = 2 * time.Millisecond
)

// longSpin is one look of who does not pause. The Go scheduler notices the end of a look that was longer than 10 ms, and then looks itself every 20 µs for a while, on
// the same processor where the program has but one.
const longSpin = 500 * time.Millisecond

// awaitRoom is await for who sends in a test of bandwidth. It sleeps for a quarter of the time it has waited, again and again: what it waits for is then late by a quarter
// at most, which leaves the device enough to do, and a device in software has one processor more. WRITE has no use for that: in
// Soft-RoCE one thread does nearly all of it, and has to wake up another for each packet where there is a free processor.
func (l *link) awaitRoom(q rdma.CompletionQueue) ([]rdma.WorkCompletion, error) {
	switch {
	case l.progress != nil:
		return l.await(q)
	case l.op == rdma.Write:
		return l.awaitAwake(q)
	}
	begin := time.Now()
	return l.awaitBetween(q, brief, func() {
		if pause := min(time.Since(begin)/pausePart, longestPause); pause >= shortestPause {
			sleep(pause)
		}
	})
}

// awaitAwake is await that looks for as long as it can at a time.
func (l *link) awaitAwake(q rdma.CompletionQueue) ([]rdma.WorkCompletion, error) {
	for {
		n, err := q.Spin(l.polled, longSpin)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			return l.answered(n)
		}
		if err := l.stillWaiting(); err != nil {
			return nil, err
		}
	}
}

// awaitEnd hears that the client is done. Where the device works as the program looks at it and the program has nothing else to look at, it gets the thread
// until then: left to its own, it sleeps whenever nothing has come for a moment, and wakes up too late for a peer that sends without a break.
func (l *link) awaitEnd() error {
	if l.progress == nil || !l.unnoticed() {
		return l.hear("end")
	}
	heard := make(chan error, 1)
	go func() { heard <- l.hear("end") }()
	for {
		for begin := time.Now(); time.Since(begin) < awhile; {
			for range looks {
				l.progress.Progress()
			}
		}
		select {
		case err := <-heard:
			return err
		default:
			runtime.Gosched() // who hears may have no other processor
		}
	}
}

// looks is how often awaitEnd polls the device between two readings of the clock.
const looks = 64
