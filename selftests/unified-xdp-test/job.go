package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/selftests/harness"
	"github.com/unifiedd/unifiedd/xdp"
)

// duty is the work of a worker on one port.
type duty interface {
	// turn does the pending work, at most a batch, and returns how long the port can wait for
	// the next turn; zero: there may be more work already.
	turn() (maxWait time.Duration, err error)
	// drain completes the work that turn began, after the last turn. It waits for a short time.
	drain() error
}

// job is a running mode: its workers and the conditions that stop them.
type job struct {
	session *session
	workers []*worker
	stop    atomic.Bool
	ended   chan struct{} // closed when stop is set
	once    sync.Once
	left    atomic.Int64 // packets to go, if a count limits them
	pinger  *pinger      // with -ping
}

// worker is one thread with its ports. Other goroutines read its counters after it has ended.
type worker struct {
	job    *job
	cpu    int          // -1: any
	thread atomic.Int64 // its id while it runs, else zero
	duties []duty
	waiter waiter
}

// newJob distributes the ports among workers and prepares everything.
func newJob(s *session) (*job, error) {
	j := &job{session: s, ended: make(chan struct{})}
	j.left.Store(int64(min(s.options.count, 1<<62)))
	if s.options.count == 0 {
		j.left.Store(1 << 62)
	}
	for n := range min(len(s.hands), len(s.iface.Ports())) {
		w := &worker{job: j, cpu: -1, waiter: waiter{how: s.options.wait, sleep: s.options.sleep}}
		if cpus := s.options.cpus; len(cpus) > 0 {
			w.cpu = int(cpus[n%len(cpus)])
		}
		j.workers = append(j.workers, w)
	}
	return j, j.deal()
}

// deal gives each port to the worker whose holder supplies its frames.
func (j *job) deal() (err error) {
	ports := j.session.iface.Ports()
	if j.session.options.mode == ping {
		j.workers = j.workers[:1]
		j.pinger, err = newPinger(j, ports)
		j.workers[0].add(j.pinger, ports...)
		return err
	}
	for i, p := range ports {
		n := i % len(j.session.hands)
		d, err := j.newDuty(p, j.session.hands[n], len(ports))
		if err != nil {
			return fmt.Errorf("queue %d: %w", p.Queue(), err)
		}
		j.workers[n].add(d, p)
	}
	return nil
}

func (j *job) newDuty(p *xdp.Port, h hand, ports int) (duty, error) {
	switch j.session.options.mode {
	case rx:
		return newReceiver(j, p, h)
	case tx:
		return newSender(j, p, h, ports)
	}
	return newEchoer(j, p, h)
}

// add gives a worker a duty on some ports.
func (w *worker) add(d duty, ports ...*xdp.Port) {
	w.duties = append(w.duties, d)
	for _, p := range ports {
		if w.waiter.how == waitPoll && p.Limits().Supply > 0 {
			w.waiter.set = append(w.waiter.set, unix.PollFd{Fd: int32(p.FD()), Events: unix.POLLIN})
		}
	}
}

// run runs the workers until time, count or context end them.
func (j *job) run(ctx context.Context) (*result, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), len(j.workers)+2)))
	defer harness.StopAfter(ctx, j.session.options.duration, j.end)()
	before, err := j.take()
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(j.workers)+1)
	var wg, guard sync.WaitGroup
	end := make(chan struct{})
	guard.Go(func() { errs[len(j.workers)] = j.guard(end) })
	guard.Go(func() { j.rouse(end) })
	for n, w := range j.workers {
		wg.Go(func() {
			errs[n] = w.run()
			j.end()
		})
	}
	wg.Wait()
	close(end)
	guard.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return j.finish(before)
}

// guard ends the job when the interface fails.
func (j *job) guard(end <-chan struct{}) error {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-end:
			return nil
		case <-tick.C:
		}
		if err := j.session.iface.Check(); err != nil {
			j.end()
			return err
		}
	}
}

// finish stops the arrival of packets, and computes the result.
func (j *job) finish(before moment) (*result, error) {
	after, err := j.take()
	if err != nil {
		return nil, err
	}
	if err := j.session.iface.Stop(); err != nil {
		return nil, err
	}
	return j.newResult(before, after)
}

// end stops the workers.
func (j *job) end() {
	j.stop.Store(true)
	j.once.Do(func() { close(j.ended) })
}

// rouse interrupts workers until all have stopped. It repeats this because a worker may be just
// about to wait. SIGURG has no other effect on a Go program (package os/signal).
func (j *job) rouse(end <-chan struct{}) {
	<-j.ended
	for tick := time.NewTicker(soon); ; {
		for _, w := range j.workers {
			if tid := w.thread.Load(); tid != 0 {
				_ = unix.Tgkill(os.Getpid(), int(tid), unix.SIGURG) // an error means that the thread has stopped
			}
		}
		select {
		case <-end:
			tick.Stop()
			return
		case <-tick.C:
		}
	}
}

// claim takes up to n of the packets that are still to go. The last one stops the workers.
func (j *job) claim(n int) int {
	left := j.left.Add(int64(-n))
	if left > 0 {
		return n
	}
	j.end()
	got := max(0, int64(n)+left)
	return int(got)
}

// run runs the worker on its own thread.
func (w *worker) run() error {
	runtime.LockOSThread() // never unlocked: a pinned thread ends with its goroutine
	w.thread.Store(int64(unix.Gettid()))
	defer w.thread.Store(0)
	if w.cpu >= 0 {
		var set unix.CPUSet
		set.Set(w.cpu)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			return fmt.Errorf("pin a worker to CPU %d: %w", w.cpu, err)
		}
	}
	for !w.job.stop.Load() {
		maxWait, err := w.round()
		if err != nil {
			return err
		}
		if maxWait > 0 {
			w.waiter.wait(maxWait)
		}
	}
	for _, d := range w.duties {
		if err := d.drain(); err != nil {
			return err
		}
	}
	return nil
}

// round gives each duty a turn and returns how long all of them can wait.
func (w *worker) round() (time.Duration, error) {
	least := forever
	for _, d := range w.duties {
		maxWait, err := d.turn()
		if err != nil {
			return 0, err
		}
		least = min(least, maxWait)
	}
	return least, nil
}
