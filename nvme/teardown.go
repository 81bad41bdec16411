package nvme

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// teardownWait tells when the kernel has torn a ring down. The kernel does so in the background
// after the descriptor is closed, and writes to the ring's words until then (io_ring_exit_work in
// io_uring/io_uring.c). teardownWait is a pipe whose writing end is only in the ring's file table,
// which the kernel empties last.
type teardownWait struct{ fd int }

// newTeardownWait registers one at a place of the ring's file table.
func (r *ring) newTeardownWait(place uint32) (teardownWait, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return teardownWait{-1}, fmt.Errorf("make a pipe: %w", err)
	}
	err := errors.Join(r.setFile(place, int32(ends[1])), unix.Close(ends[1]))
	if err != nil {
		return teardownWait{-1}, errors.Join(err, unix.Close(ends[0]))
	}
	return teardownWait{ends[0]}, nil
}

// await waits until the ring is gone, at most for limit, and reports whether it is. It returns
// false if no pipe is registered.
func (w *teardownWait) await(limit time.Duration) bool {
	if w.fd < 0 {
		return false
	}
	fds := []unix.PollFd{{Fd: int32(w.fd)}} // a pipe without writers reports POLLHUP
	for end := time.Now().Add(limit); ; {
		left := time.Until(end)
		n, err := unix.Poll(fds, int(max(left, 0).Milliseconds()))
		if n > 0 {
			return fds[0].Revents&unix.POLLHUP != 0
		}
		if left <= 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return false
		}
	}
}

func (w *teardownWait) close() error {
	if w.fd < 0 {
		return nil
	}
	err := unix.Close(w.fd)
	w.fd = -1
	return err
}
