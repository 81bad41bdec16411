package client

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
)

// polled is polled by the loop. Its methods run on the loop's thread, and do not block.
type polled interface {
	// poll reports whether anything happened.
	poll(now time.Time) (moved bool)
	// arm makes the descriptors of fds readable when poll has work. It reports whether poll may have work already.
	arm() (work bool)
	// fds appends these descriptors.
	fds(dst []unix.PollFd) []unix.PollFd
}

// loop is the one thread that uses a client's books, ports and queue pairs.
type loop struct {
	spin     bool
	batcher  rdma.Batcher // the device if it implements it; otherwise nil
	commands chan func()
	pending  atomic.Int32
	bell     *bell
	all      []polled  // thread only
	gave     time.Time // thread only: the last yield
	stop     chan struct{}
	done     chan struct{}
	once     sync.Once
}

// A loop to which nothing happens polls for a while, then sleeps between polls for a while, and then waits for an event.
// What a peer answers soon so costs no event, which takes two thread switches more than a poll.
const (
	pollInterval  = 100 * time.Microsecond
	sleepInterval = 50 * time.Microsecond
	waitAfter     = 300 * time.Microsecond
)

// The longest time between two yields: while messages move, and at other times.
const (
	awhile = 4 * time.Millisecond
	moment = 500 * time.Microsecond
)

var errClosed = errors.New("the client is closed")

func newLoop(d rdma.Device, spin bool) (*loop, error) {
	l := &loop{spin: spin, commands: make(chan func(), 16), stop: make(chan struct{}), done: make(chan struct{})}
	l.batcher, _ = d.(rdma.Batcher)
	var err error
	if l.bell, err = newBell(); err != nil {
		return nil, err
	}
	go l.run()
	return l, nil
}

// run is the thread.
func (l *loop) run() {
	runtime.LockOSThread()
	defer close(l.done)
	defer runtime.UnlockOSThread()
	moved := time.Now()
	for !l.ended() {
		l.runCommands()
		if len(l.all) == 0 {
			l.idle()
			continue
		}
		now := time.Now()
		if l.round(now) {
			moved = now
		}
		switch idle := now.Sub(moved); {
		case idle > waitAfter && !l.spin && l.bell.wait(l.all):
			moved = time.Now()
		case idle > pollInterval && !l.spin:
			sleep(sleepInterval)
		case idle > pollInterval || now.Sub(l.gave) > awhile:
			l.yield(now)
		}
	}
	l.runCommands()
}

// wake makes the thread poll everything soon, if it waits. Any goroutine may call it, after it has left something for poll.
func (l *loop) wake() { l.bell.ring() }

// yield lets other goroutines run for a moment. The loop's goroutine is locked to its thread, so a
// yield costs two thread switches, and not every empty round does one.
func (l *loop) yield(now time.Time) {
	if now.Sub(l.gave) > moment {
		runtime.Gosched()
		l.gave = now
	}
}

func (l *loop) ended() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

// idle waits until there is something to poll, or the end. A thread that polls nothing would waste
// a processor.
func (l *loop) idle() {
	select {
	case f := <-l.commands:
		l.pending.Add(-1)
		f()
	case <-l.stop:
	}
}

// round polls everything once. If the device can batch, it sends everything together.
func (l *loop) round(now time.Time) (moved bool) {
	if len(l.all) > 1 && l.batcher != nil {
		l.batcher.Begin()
		defer l.batcher.End()
	}
	for _, p := range l.all {
		moved = p.poll(now) || moved
	}
	return moved
}

func (l *loop) runCommands() {
	for l.pending.Load() > 0 {
		f := <-l.commands
		l.pending.Add(-1)
		f()
	}
}

// do runs f on the loop's thread between rounds, and waits for it.
func (l *loop) do(f func() error) error {
	result := make(chan error, 1)
	l.pending.Add(1)
	select {
	case l.commands <- func() { result <- f() }:
	case <-l.done:
		return errClosed
	}
	l.wake()
	select {
	case err := <-result:
		return err
	case <-l.done:
		return errClosed
	}
}

// add adds p to the polled objects, and remove removes it.
func (l *loop) add(p polled) error {
	return l.do(func() error { l.all = append(l.all, p); return nil })
}

func (l *loop) remove(p polled) error {
	return l.do(func() error {
		for i, other := range l.all {
			if other == p {
				l.all = append(l.all[:i:i], l.all[i+1:]...)
				break
			}
		}
		return nil
	})
}

// close ends the thread.
func (l *loop) close() error {
	var err error
	l.once.Do(func() {
		close(l.stop)
		l.wake()
		<-l.done
		err = l.bell.close()
	})
	<-l.done
	return err
}

// sleep sleeps for about d. time.Sleep takes at least a millisecond if nothing else runs, because
// the Go scheduler then waits in epoll_wait(2), which counts milliseconds. An interrupted sleep is
// shorter.
func sleep(d time.Duration) {
	t := unix.NsecToTimespec(d.Nanoseconds())
	_ = unix.Nanosleep(&t, nil)
}
