package worker

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestModeration: after a short wait for an event 16 sleeps follow, then another wait. After a long one none follows.
func TestModeration(t *testing.T) {
	m := moderation{sleep: 200 * time.Microsecond}
	sleeps := func() (n int) {
		for m.sleeps() {
			n++
		}
		return n
	}
	if n := sleeps(); n != 0 {
		t.Errorf("%d sleeps before the first wait", n)
	}
	for _, step := range []struct {
		waited time.Duration
		want   int
	}{{0, sleepsInRow}, {99 * time.Microsecond, sleepsInRow}, {100 * time.Microsecond, 0}, {time.Second, 0}, {time.Microsecond, sleepsInRow}} {
		if m.note(step.waited); sleeps() != step.want {
			t.Errorf("after a wait of %v there are not %d sleeps", step.waited, step.want)
		}
	}
	m = moderation{}
	if m.note(0); m.sleeps() {
		t.Error("it sleeps with sleep: 0s")
	}
}

// listener is a poller that has work whenever its descriptor is readable.
type listener struct{ fd int }

func (l *listener) Poll(time.Time) bool { return false }
func (l *listener) FDs(dst []unix.PollFd) []unix.PollFd {
	return append(dst, unix.PollFd{Fd: int32(l.fd), Events: unix.POLLIN})
}
func (l *listener) Deadline(now time.Time) time.Time { return now.Add(MaxWait) }

// newListener returns a poller, and what makes its descriptor readable.
func newListener(t *testing.T) (l *listener, signal func()) {
	e, err := newEventfd()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return &listener{e.fd}, e.signal
}

// started returns a worker with these pollers. sleep is long, so that a test notices each.
func started(t *testing.T, ps ...Poller) *Worker {
	c := config.NewWorker("w")
	c.Sleep = 5 * time.Millisecond
	w, err := New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Do(func() error { w.pollers = nil; return nil }); err != nil {
			t.Error(err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, p := range ps {
		if err := w.Add(p, Needs{}); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// roundsIn returns the rounds that a worker makes in a span.
func roundsIn(w *Worker, span time.Duration) uint64 {
	before := w.Rounds()
	time.Sleep(span)
	return w.Rounds() - before
}

// TestCalmWorkerWaits: a worker whose flows have nothing to do wakes once a second. A command wakes it at once.
func TestCalmWorkerWaits(t *testing.T) {
	a, _ := newListener(t)
	b, _ := newListener(t)
	w := started(t, a, b)
	if n := roundsIn(w, 2*time.Second); n > 10 { // Go's scheduler may signal the thread
		t.Errorf("%d rounds in 2 s in which there was nothing to do", n)
	}
	begun := time.Now()
	for range 30 {
		if err := w.Do(func() error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(begun); took > 15*time.Second {
		t.Errorf("30 commands took %v", took)
	}
}

// TestMostImpatientFlow: under traffic a worker sleeps, unless somebody waits for one of its flows.
func TestMostImpatientFlow(t *testing.T) {
	capture, arrives := newListener(t)
	w := started(t, capture)
	arrives()
	if n := roundsIn(w, 2*time.Second); n > 600 {
		t.Errorf("%d rounds in 2 s of sleeps of 5 ms", n)
	}
	log, _ := newListener(t)
	if err := w.Add(log, Needs{Prompt: true}); err != nil {
		t.Fatal(err)
	}
	before := w.Rounds()
	testenv.Wait(t, 2*time.Minute, "rounds without sleeps", func() bool { return w.Rounds() > before+5000 })
	if err := w.Remove(log); err != nil {
		t.Fatal(err)
	}
	if n := roundsIn(w, 2*time.Second); n > 600 {
		t.Errorf("%d rounds in 2 s after the flow for which somebody waited has ended", n)
	}
}

// TestWaitAllocatesNothing: neither do short waits for events, long ones, and sleeps.
func TestWaitAllocatesNothing(t *testing.T) {
	l, signal := newListener(t)
	wake, err := newEventfd()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = wake.Close() })
	c := config.NewWorker("w")
	w, ps := newWaiter(c, wake), []Poller{&brief{l, 3 * time.Millisecond}}
	for _, ready := range []bool{false, true} {
		if ready {
			signal()
		}
		if n := testing.AllocsPerRun(50, func() { w.wait(ps, false) }); n > 0 {
			t.Errorf("%v allocations in a wait; ready is %v", n, ready)
		}
	}
}

// brief is a listener with a deadline after a span.
type brief struct {
	*listener
	span time.Duration
}

func (b *brief) Deadline(now time.Time) time.Time { return now.Add(b.span) }
