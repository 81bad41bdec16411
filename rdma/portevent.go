package rdma

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// portEvent is the descriptor behind a port's FD: an epoll(7) over the descriptors of both
// completion queues and an eventfd, which is set while the port itself has something to give.
type portEvent struct {
	poll  int // the epoll's descriptor; -1: none
	fd    int // the eventfd's
	set   bool
	armed [2]bool // the queues give an event at their next completion
	one   [8]byte // what setting it writes
	was   [8]byte // what clearing it reads
	err   error
}

func (e *portEvent) open(queues ...CompletionQueue) (err error) {
	binary.NativeEndian.PutUint64(e.one[:], 1)
	if e.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("make a descriptor to wait on: %w", err)
	}
	if e.fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("make a descriptor to wait on: %w", err)
	}
	fds := []int{e.fd}
	for _, q := range queues {
		if q.FD() < 0 {
			return errors.New("a completion queue was made without Events")
		}
		fds = append(fds, q.FD())
	}
	for _, fd := range fds {
		if err := unix.EpollCtl(e.poll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
			return fmt.Errorf("wait on the completion queues: %w", err)
		}
	}
	return nil
}

// tell makes the descriptor poll readable exactly while there is something to take: it has
// both queues armed, and looks at them again after that.
func (p *MessagePort) tell() {
	e := &p.event
	if e.poll < 0 || p.closed {
		return
	}
	e.ready(&p.sent, 0)
	e.ready(&p.came, 1)
	e.show(p.drained.len() > 0 || p.sent.at < p.sent.n || p.came.at < p.came.n)
}

// ready arms a queue that has nothing.
func (e *portEvent) ready(c *completions, n int) {
	for !c.fill() && c.err == nil {
		events, err := c.queue.Acknowledge()
		if err == nil && e.armed[n] && events == 0 {
			return
		}
		if err == nil {
			err = c.queue.Arm(false)
		}
		if e.armed[n] = err == nil; err != nil {
			e.err = err
			return
		}
		if c.fill() {
			return
		}
	}
}

// show sets or clears the eventfd.
func (e *portEvent) show(there bool) {
	if there == e.set {
		return
	}
	e.set = there
	for {
		var err error
		if there {
			_, err = unix.Write(e.fd, e.one[:])
		} else {
			_, err = unix.Read(e.fd, e.was[:])
		}
		if err != unix.EINTR {
			return
		}
	}
}

func (e *portEvent) close() error {
	var errs []error
	for _, fd := range []*int{&e.poll, &e.fd} {
		if *fd >= 0 {
			errs = append(errs, unix.Close(*fd))
			*fd = -1
		}
	}
	return errors.Join(errs...)
}
