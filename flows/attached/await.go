package attached

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// shortWait is how long a wait only polls its descriptor. A longer one makes ready to be roused.
	shortWait = 20 * time.Millisecond
	// longWait is as long as an event may go unnoticed of which nobody tells.
	longWait = time.Second
)

// await waits until a descriptor is readable, ended returns an error, or ctx ends, and at most for a time. came says that
// the descriptor is readable. Only what the connection says may change what ended returns.
func (l *link) await(ctx context.Context, fd int, most time.Duration, ended func() error) (came bool, err error) {
	fds := [2]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: -1, Events: unix.POLLIN}}
	came, err = poll(fds[:1], min(most, shortWait))
	if came || err != nil || most <= shortWait {
		return came, err
	}
	var w waiter
	if err := w.open(); err != nil {
		return false, err
	}
	defer w.close()
	defer context.AfterFunc(ctx, w.rouse)()
	l.rouses(&w)
	defer l.leaves(&w)
	if ctx.Err() != nil || ended() != nil {
		return false, nil
	}
	fds[1].Fd = int32(w.fd)
	_, err = poll(fds[:], most-shortWait)
	return fds[0].Revents != 0, err
}

// poll reports whether a descriptor is readable, within a time. A signal, such as one of the Go scheduler, does not end it.
func poll(fds []unix.PollFd, most time.Duration) (bool, error) {
	for end := time.Now().Add(most); ; {
		n, err := unix.Poll(fds, int((most+time.Millisecond-1)/time.Millisecond))
		if most = time.Until(end); err == unix.EINTR && most > 0 {
			continue
		}
		if err != nil && err != unix.EINTR {
			return false, fmt.Errorf("wait for the daemon: %w", err)
		}
		return err == nil && n > 0, nil
	}
}

// waiter is a long wait. An eventfd ends it.
type waiter struct {
	mu sync.Mutex
	fd int // -1: closed
}

func (w *waiter) open() (err error) {
	if w.fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		w.fd = -1
		return fmt.Errorf("wait for the daemon: %w", err)
	}
	return nil
}

// rouse ends the wait. Any goroutine may call it, also after the end.
func (w *waiter) rouse() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fd >= 0 {
		_, _ = unix.Write(w.fd, binary.NativeEndian.AppendUint64(nil, 1))
	}
}

func (w *waiter) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = unix.Close(w.fd) // an eventfd that is open
	w.fd = -1
}

// rouses makes the end of the connection, and each end of a port, end a wait.
func (l *link) rouses(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiters[w] = struct{}{}
}

func (l *link) leaves(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiters, w)
}

// rouse ends all long waits. l.mu is held.
func (l *link) rouse() {
	for w := range l.waiters {
		w.rouse()
	}
}
