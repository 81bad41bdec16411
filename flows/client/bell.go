package client

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/counter"
)

// bell is what the loop waits with, and what other goroutines wake it with.
type bell struct {
	rung   atomic.Bool // since the loop last looked
	asleep atomic.Bool // the loop waits, or is about to
	waits  counter.Counter
	limit  time.Duration // of a wait; thread only
	set    []unix.PollFd // thread only

	mu sync.Mutex // guards fd
	fd int        // an eventfd; -1: closed
}

// longestWait bounds a wait, so that the loss of a device that tells nothing is found.
const longestWait = time.Second

func newBell() (*bell, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make a descriptor to wake the client with: %w", err)
	}
	return &bell{fd: fd, limit: longestWait}, nil
}

// ring ends a wait, or keeps the next one from beginning. A call costs one load if the loop has not looked since the last
// one.
func (b *bell) ring() {
	if b.rung.Load() || b.rung.Swap(true) || !b.asleep.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fd >= 0 {
		one := [8]byte{1}
		_, _ = unix.Write(b.fd, one[:]) // fails only if it is readable already
	}
}

// wait waits until something has work or the bell rings. It returns false if something may have work already: then it is to
// be polled before the next wait.
func (b *bell) wait(all []polled) bool {
	b.asleep.Store(true)
	defer b.asleep.Store(false)
	work := b.rung.Swap(false) // what was left for poll before is found there; what is left later rings again
	b.set = append(b.set[:0], unix.PollFd{Fd: int32(b.fd), Events: unix.POLLIN})
	for _, p := range all {
		work = p.arm() || work
		b.set = p.fds(b.set)
	}
	if work {
		return false
	}
	b.waits.Add(1)
	limit := unix.NsecToTimespec(b.limit.Nanoseconds())
	if n, err := unix.Ppoll(b.set, &limit, nil); n > 0 && err == nil && b.set[0].Revents != 0 {
		var count [8]byte
		_, _ = unix.Read(b.fd, count[:])
	}
	return true
}

func (b *bell) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	fd := b.fd
	b.fd = -1
	return unix.Close(fd)
}
