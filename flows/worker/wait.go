package worker

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
)

// waiter is what a worker does when no flow has more to do.
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

// spin looks again at once.
type spinWaiter struct{}

func (spinWaiter) wait([]Poller) {}

// sleep sleeps a set time, so that packets are taken in batches and not one by
// one as they come.
type sleepWaiter struct{ duration unix.Timespec }

// wait keeps the Go scheduler's processor: handing it over and getting it back
// costs more CPU than a nap of a fraction of a millisecond blocks others for, and
// GOMAXPROCS leaves two processors to them.
func (s sleepWaiter) wait([]Poller) { rawSleep(&s.duration) }

// poll sleeps until a device has something, a flow's deadline comes, or a command
// is given.
type pollWaiter struct {
	wake *eventfd
	set  []unix.PollFd
}

// longest is the most a poll waits, for flows that want to look at a clock.
const MaxWait = 100 * time.Millisecond

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
	if n, err := unix.Ppoll(p.set, &ts, nil); n <= 0 || err != nil {
		return
	}
	if p.set[0].Revents != 0 {
		p.wake.clear()
	}
}
