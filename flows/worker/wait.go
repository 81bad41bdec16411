package worker

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
)

// rawTime is how long a wait for an event goes without notice to the Go scheduler: the thread keeps its P, and a short wait
// costs one system call. A longer wait gives the P back, so that sysmon sleeps too and does not signal the thread.
const rawTime = 2 * time.Millisecond

// waiter waits when no flow has anything to do. The worker's thread owns it.
type waiter struct {
	spins bool
	wake  *eventfd
	set   []unix.PollFd
	rest  moderation
}

func newWaiter(c config.Worker, wake *eventfd) *waiter {
	return &waiter{spins: c.Wait == config.WaitSpin, wake: wake, set: make([]unix.PollFd, 0, 64), rest: moderation{sleep: c.Sleep}}
}

// wait waits until there may be something to do. With prompt it never sleeps past an event. It returns the longest time
// that the wait was to take, or 0 if an event has ended it.
func (w *waiter) wait(ps []Poller, prompt bool) (most time.Duration, event bool) {
	switch {
	case w.spins:
		return 0, false
	case !prompt && w.rest.sleeps():
		ts := unix.NsecToTimespec(w.rest.sleep.Nanoseconds())
		rawSleep(&ts)
		return w.rest.sleep, false
	}
	began := time.Now()
	most = w.gather(ps, began)
	ready, signal := w.poll(most)
	switch {
	case ready && w.set[0].Revents != 0:
		w.wake.clear()
	case !signal:
		w.rest.note(time.Since(began))
	}
	return most, ready || signal
}

// gather collects the descriptors to wait for, and returns for how long to wait.
func (w *waiter) gather(ps []Poller, now time.Time) time.Duration {
	until := now.Add(MaxWait)
	w.set = append(w.set[:0], unix.PollFd{Fd: int32(w.wake.fd), Events: unix.POLLIN})
	for _, one := range ps {
		w.set = one.FDs(w.set)
		if d := one.Deadline(now); d.Before(until) {
			until = d
		}
	}
	return max(0, until.Sub(now))
}

// poll waits until a descriptor is ready. signal says that a signal has ended the wait.
func (w *waiter) poll(most time.Duration) (ready, signal bool) {
	ts := unix.NsecToTimespec(min(most, rawTime).Nanoseconds())
	n, errno := rawPoll(w.set, &ts)
	if n > 0 || errno != 0 || most <= rawTime {
		return n > 0, errno != 0
	}
	ts = unix.NsecToTimespec((most - rawTime).Nanoseconds())
	n, err := unix.Ppoll(w.set, &ts, nil)
	return n > 0, err != nil
}

// moderation is when a worker sleeps for a set time instead of waiting for an event, as a card moderates its interrupts: a
// sleep takes many packets at once, where a wait for events may end with each of them.
type moderation struct {
	sleep time.Duration // 0: never
	left  int           // sleeps until the next wait for an event
}

// sleepsInRow is how many sleeps follow a short wait for an event. The next wait shows whether there is still traffic.
const sleepsInRow = 16

// sleeps reports whether the next wait is a sleep.
func (m *moderation) sleeps() bool {
	if m.left == 0 {
		return false
	}
	m.left--
	return true
}

// note takes the length of a wait for an event. A short one shows traffic.
func (m *moderation) note(waited time.Duration) {
	if waited < m.sleep/2 {
		m.left = sleepsInRow
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
