package client

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// still is what a loop polls and nothing happens to. Its descriptor is an eventfd.
type still struct {
	polls, arms atomic.Int64
	busy        atomic.Bool // arm says that there may be work
	fd          int
}

func (s *still) poll(time.Time) bool {
	s.polls.Add(1)
	var b [8]byte
	_, err := unix.Read(s.fd, b[:])
	return err == nil
}

func (s *still) arm() bool { s.arms.Add(1); return s.busy.Load() }

func (s *still) fds(dst []unix.PollFd) []unix.PollFd {
	return append(dst, unix.PollFd{Fd: int32(s.fd), Events: unix.POLLIN})
}

// show makes the descriptor readable.
func (s *still) show(t *testing.T) {
	t.Helper()
	if _, err := unix.Write(s.fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
}

// TestLoopWaits: a loop to which nothing happens waits and polls nothing. A descriptor, wake, a command and close each end
// the wait at once.
func TestLoopWaits(t *testing.T) {
	s := &still{}
	var err error
	if s.fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(s.fd)
	l := waitingLoop(t, s)
	waits := l.bell.waits.Load
	waiting := func(after uint64) {
		t.Helper()
		testenv.Wait(t, 10*time.Second, "the loop to wait", func() bool { return waits() > after })
	}
	waiting(0)
	polls := s.polls.Load()
	time.Sleep(200 * time.Millisecond)
	if n := s.polls.Load() - polls; n > 0 || waits() > 1 {
		t.Errorf("the loop has polled %d times while it waited, and waited %d times", n, waits())
	}
	for what, end := range map[string]func(){
		"descriptor": func() { s.show(t) },
		"wake":       l.wake,
		"command":    func() { _ = l.do(func() error { return nil }) },
	} {
		before, polls := waits(), s.polls.Load()
		end()
		waiting(before) // it has polled, and waits again
		if n := s.polls.Load() - polls; n < 2 {
			t.Errorf("%s: the loop has polled %d times", what, n)
		}
	}
	s.busy.Store(true) // as while memory is granted
	before := waits()
	polls = s.polls.Load()
	l.wake()
	testenv.Wait(t, 10*time.Second, "polls", func() bool { return s.polls.Load() > polls+100 })
	if n := waits() - before; n > 0 {
		t.Errorf("the loop has waited %d times though there may have been work", n)
	}
	s.busy.Store(false)
	waiting(before)
	if err := l.close(); err != nil {
		t.Error(err)
	}
	if err := l.do(func() error { return nil }); !errors.Is(err, errClosed) {
		t.Errorf("a command after the end: %v", err)
	}
	l.wake() // does nothing
}

// waitingLoop returns a loop whose waits have no limit.
func waitingLoop(t *testing.T, p polled) *loop {
	t.Helper()
	l, err := newLoop(nil, false)
	if err == nil {
		err = errors.Join(l.do(func() error { l.bell.limit = 24 * time.Hour; return nil }), l.add(p))
	}
	testenv.Must(t, err)
	return l
}

// TestRing: what is left for the loop before it waits, while it looks whether it may wait, or while it waits, is found.
func TestRing(t *testing.T) {
	box := &letters{came: make(chan int, 1)}
	l := waitingLoop(t, box)
	for n := range 2000 {
		box.left.Store(int64(n) + 1)
		l.wake()
		if got := <-box.came; got != n+1 { // after a lost ring nothing comes
			t.Fatalf("letter %d, want %d", got, n+1)
		}
		if n%4 == 0 { // until it is about to wait, or waits
			time.Sleep(time.Duration(n%40) * 20 * time.Microsecond)
		}
	}
	if err := l.close(); err != nil {
		t.Error(err)
	}
}

// letters is polled for what the test has left.
type letters struct {
	left atomic.Int64
	came chan int
}

func (b *letters) poll(time.Time) bool {
	n := b.left.Swap(0)
	if n > 0 {
		b.came <- int(n)
	}
	return n > 0
}

func (b *letters) arm() bool                           { return false }
func (b *letters) fds(dst []unix.PollFd) []unix.PollFd { return dst }
