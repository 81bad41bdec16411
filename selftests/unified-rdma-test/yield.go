package main

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
)

// brief is how long one poll lasts in waits that do something else between polls.
const brief = time.Microsecond

// awaitMany is await for the receiver of a bandwidth test. After each poll without a completion it
// yields the processor. The kernel's threads that run a device in software may need it. A program
// that waits for the answer to a single message keeps the processor: if it yielded, it would see
// the answer late. A device that works only while the program polls gets all of the processor.
func (l *link) awaitMany(q rdma.CompletionQueue) ([]rdma.WorkCompletion, error) {
	if l.progress != nil {
		return l.await(q)
	}
	return l.awaitBetween(q, brief, func() {
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) // sched_yield(2) always succeeds
	})
}

// The sleeps of awaitRoom: the fraction of the time waited so far, and the bounds. A shorter sleep
// would cost more than it saves.
const (
	pausePart     = 4
	shortestPause = 50 * time.Microsecond
	longestPause  = 2 * time.Millisecond
)

// longSpin is the length of one poll that does not pause. The Go scheduler notices a poll that was
// longer than 10 ms. Then it polls every 20 µs for a while. If the program has only one processor,
// it does so on that one.
const longSpin = 500 * time.Millisecond

// awaitRoom is await for the sender of a bandwidth test. It sleeps repeatedly for a quarter of the time
// that it has waited. So it sees a completion at most a quarter late. The device has enough work for that
// time, and a device in software gains a processor. WRITE does not sleep: in Soft-RoCE one thread does
// nearly all of its work, and with a free processor that thread must wake another one for each packet.
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

// awaitAwake is await with polls that are as long as possible.
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

// awaitEnd waits until the client is done. If the device works only while the program polls, and
// the program has nothing else to poll, the thread polls the device until then. Otherwise the
// device would sleep whenever nothing arrives for a moment. It would wake too late for a peer that
// sends without a break.
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
			runtime.Gosched() // the goroutine of hear may have no other processor
		}
	}
}

// looks is how often awaitEnd polls the device between two readings of the clock.
const looks = 64
