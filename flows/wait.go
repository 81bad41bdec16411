package flows

import (
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"golang.org/x/sys/unix"
)

// waiter is what a worker does when no flow has more to do.
type waiter interface {
	wait(ps []pattern)
}

func newWaiter(c config.Worker, wake *eventfd) waiter {
	switch c.Wait {
	case config.WaitSpin:
		return spin{}
	case config.WaitPoll:
		return &poll{wake: wake, set: make([]unix.PollFd, 0, 64)}
	}
	return sleep{unix.NsecToTimespec(c.Sleep.Nanoseconds())}
}

// spin looks again at once.
type spin struct{}

func (spin) wait([]pattern) {}

// sleep sleeps a set time, so that packets are taken in batches and not one by
// one as they come.
type sleep struct{ time unix.Timespec }

// wait keeps the Go scheduler's processor: handing it over and getting it back
// costs more CPU than a nap of a fraction of a millisecond blocks others for, and
// GOMAXPROCS leaves two processors to them.
func (s sleep) wait([]pattern) { nap(&s.time) }

// poll sleeps until a device has something, a flow's deadline comes, or a command
// is given.
type poll struct {
	wake *eventfd
	set  []unix.PollFd
}

// longest is the most a poll waits, for flows that want to look at a clock.
const longest = 100 * time.Millisecond

func (p *poll) wait(ps []pattern) {
	now := time.Now()
	until := now.Add(longest)
	p.set = append(p.set[:0], unix.PollFd{Fd: int32(p.wake.fd), Events: unix.POLLIN})
	for _, one := range ps {
		p.set = one.fds(p.set)
		if d := one.deadline(now); d.Before(until) {
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
