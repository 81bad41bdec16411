package msg

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
)

// event is the descriptor of a port's FD: an epoll(7) instance over the descriptors of both
// completion queues and an eventfd. The eventfd is set while the port has frames or completions to
// return.
type event struct {
	poll  int // the epoll's descriptor; -1: none
	fd    int // the eventfd's
	set   bool
	onArm bool    // the queues are armed by arm only, and the eventfd is never set
	armed [2]bool // the queue will give an event at its next completion
	one   [8]byte // what setting it writes
	was   [8]byte // what clearing it reads
	err   error
}

func (e *event) open(queues ...rdma.CompletionQueue) (err error) {
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

// tell makes the descriptor poll readable exactly while there is something to return. asked means
// that the caller has polled and found nothing: an event that arrived after its completion was
// polled may have woken it.
func (p *Port) tell(asked bool) { p.event.tell(&p.sent, &p.came, p.drained.len() > 0, asked) }

// tell arms each queue that is empty, and then polls it again. It sets the eventfd if there are
// completions, or if other is set because the port has something else to return.
func (e *event) tell(sent, came *completions, other, asked bool) {
	if e.poll < 0 || e.onArm {
		return
	}
	e.ready(sent, 0, asked)
	e.ready(came, 1, asked)
	e.show(other || sent.left() || came.left())
}

// arm is tell for a caller that polls again, and does not wait, when there is something to return.
func (e *event) arm(sent, came *completions, other bool) (there bool) {
	e.ready(sent, 0, true)
	e.ready(came, 1, true)
	return other || sent.left() || came.left() || sent.err != nil || came.err != nil || e.err != nil
}

// ready arms a queue that was found empty. If the queue was armed and is still empty, it consumes
// the event of completions that were polled before the event came.
func (e *event) ready(c *completions, n int, asked bool) {
	for !c.fill() && c.err == nil {
		if e.armed[n] && !c.fresh && !asked {
			return
		}
		events, err := c.queue.Acknowledge()
		if err == nil && e.armed[n] && events == 0 && !c.fresh {
			return
		}
		if err == nil {
			err = c.queue.Arm(false)
		}
		if e.armed[n] = err == nil; err != nil {
			e.err = err
			return
		}
		c.fresh, asked = false, false
	}
}

// show sets or clears the eventfd.
func (e *event) show(there bool) {
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

func (e *event) close() error {
	var errs []error
	for _, fd := range []*int{&e.poll, &e.fd} {
		if *fd >= 0 {
			errs = append(errs, unix.Close(*fd))
			*fd = -1
		}
	}
	return errors.Join(errs...)
}

// batchSize bounds the completions of one poll.
const batchSize = 64

// completions are completions that were polled from one queue and not used yet.
type completions struct {
	queue rdma.CompletionQueue
	buf   [batchSize]rdma.WorkCompletion
	at, n int
	fresh bool  // some arrived since the queue was armed
	err   error // the queue's, once it is gone
}

// next returns at most most completions, and marks them as used. It polls if it has none.
func (c *completions) next(most int) []rdma.WorkCompletion {
	if c.at == c.n {
		c.fill()
	}
	n := min(most, c.n-c.at)
	c.at += n
	return c.buf[c.at-n : c.at]
}

// fill polls, and reports whether there is something to use.
func (c *completions) fill() bool {
	if c.left() {
		return true
	}
	n, err := c.queue.Poll(c.buf[:])
	if err != nil {
		c.err = err
	}
	c.at, c.n = 0, n
	c.fresh = c.fresh || n > 0
	return n > 0
}

// last reports whether the caller has used all completions of a poll that did not fill the buffer.
// The queue was empty then.
func (c *completions) last() bool { return c.at == c.n && c.n < len(c.buf) }

// left reports whether some were polled and not used.
func (c *completions) left() bool { return c.at < c.n }
