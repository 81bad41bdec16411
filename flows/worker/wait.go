package worker

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
)

// waiter is how a worker waits when no flow has anything to do.
type waiter interface {
	wait(ps []Poller)
}

func newWaiter(c config.Worker, wake *eventfd) waiter {
	switch c.Wait {
	case config.WaitSpin:
		return spinWaiter{}
	case config.WaitPoll:
		return &pollWaiter{wake: wake, set: make([]unix.PollFd, 0, 64)}
	}
	return sleepWaiter{unix.NsecToTimespec(c.Sleep.Nanoseconds())}
}

// spinWaiter does not wait.
type spinWaiter struct{}

func (spinWaiter) wait([]Poller) {}

// sleepWaiter sleeps for a fixed time, so that the worker takes packets in batches.
type sleepWaiter struct{ duration unix.Timespec }

// wait uses a raw system call, so that the thread keeps its P. Releasing and reacquiring a P costs
// more CPU than a sleep of 200 µs. GOMAXPROCS leaves two Ps for other goroutines.
func (s sleepWaiter) wait([]Poller) { rawSleep(&s.duration) }

// pollWaiter sleeps until a descriptor is readable, the deadline of a flow passes, or a command
// arrives.
type pollWaiter struct {
	wake *eventfd
	set  []unix.PollFd
}

// MaxWait is the longest wait of a worker with wait: poll.
const MaxWait = 100 * time.Millisecond

// wait uses a raw system call, so that the thread keeps its P, as sleepWaiter does. If the scheduler knew of the wait,
// sysmon would take the P after 10 ms, having looked every 20 µs for other work. For a flow that gets some blocks of
// packets in a second, that costs more than the flow: docs/benchmarks/capture.md.
func (p *pollWaiter) wait(ps []Poller) {
	now := time.Now()
	until := now.Add(MaxWait)
	p.set = append(p.set[:0], unix.PollFd{Fd: int32(p.wake.fd), Events: unix.POLLIN})
	for _, one := range ps {
		p.set = one.FDs(p.set)
		if d := one.Deadline(now); d.Before(until) {
			until = d
		}
	}
	ts := unix.NsecToTimespec(max(0, until.Sub(now).Nanoseconds()))
	if n, errno := rawPoll(p.set, &ts); errno != 0 || n == 0 {
		return
	}
	if p.set[0].Revents != 0 {
		p.wake.clear()
	}
}

// eventfd wakes a worker that sleeps in ppoll.
type eventfd struct {
	fd   int
	once sync.Once
}

func newEventfd() (*eventfd, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("create an eventfd: %w", err)
	}
	return &eventfd{fd: fd}, nil
}

// signal makes the descriptor readable. If the counter is full, the descriptor is readable already.
func (e *eventfd) signal() {
	one := [8]byte{1}
	_, _ = unix.Write(e.fd, one[:])
}

// clear makes the descriptor unreadable.
func (e *eventfd) clear() {
	var b [8]byte
	_, _ = unix.Read(e.fd, b[:])
}

func (e *eventfd) Close() (err error) {
	e.once.Do(func() { err = unix.Close(e.fd) })
	return err
}
