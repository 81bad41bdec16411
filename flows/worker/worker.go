package worker

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/internal/numa"
)

// pattern is one flow as its worker sees it. All methods run on the worker's
// thread, and none of them blocks.
type Poller interface {
	// poll moves what there is to move, and reports whether more is waiting
	// already.
	Poll(now time.Time) (more bool)
	// fds appends what to poll for when there is nothing to do.
	FDs(dst []unix.PollFd) []unix.PollFd
	// deadline is when poll wants to be called again though no descriptor is
	// readable.
	Deadline(now time.Time) time.Time
}

// Worker is one OS thread that polls its flows in turn. Nothing else runs on it.
type Worker struct {
	config config.Worker
	node   *int // whose CPUs it stays on, where the configuration names none
	wait   waiter

	commands chan func() // run between rounds
	pending  atomic.Int32
	wake     *eventfd
	pollers  []Poller        // the thread's own
	rounds   counter.Counter // calls of all flows in turn
	idle     counter.Counter // rounds after which it waited
	stall    stalls
	quantum  quantum // the thread's own

	stopping atomic.Bool
	done     chan struct{}
	once     sync.Once
	err      error // of Close
}

// newWorker starts the thread. A worker that no CPU is set for stays on those of the node,
// if there is one.
func New(c config.Worker, node *int) (*Worker, error) {
	wake, err := newEventfd()
	if err != nil {
		return nil, fmt.Errorf("start worker %s: %w", c.Name, err)
	}
	w := &Worker{
		config: c, node: node, wait: newWaiter(c, wake), wake: wake,
		commands: make(chan func(), 16), done: make(chan struct{}),
	}
	started := make(chan error, 1)
	go w.run(started)
	if err := <-started; err != nil {
		<-w.done
		return nil, errors.Join(err, wake.Close())
	}
	return w, nil
}

// run is the thread.
func (w *Worker) run(started chan<- error) {
	defer close(w.done)
	runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
	if err := w.pin(); err != nil {
		started <- err
		return
	}
	started <- nil
	w.stall.restart(time.Now())
	for set := time.Duration(0); !w.stopping.Load(); {
		w.runCommands()
		now := time.Now()
		w.stall.note(now, set)
		w.quantum.begin(now)
		if set = 0; w.round(now) || w.pending.Load() > 0 {
			continue
		}
		w.idle.Add(1)
		if w.quantum.expired() {
			runtime.Gosched()
		}
		set = w.idleWait()
	}
}

// rest waits until there may be something to do, and returns for how long that was to be at most, if it was for a set time.
func (w *Worker) idleWait() (set time.Duration) {
	w.wait.wait(w.pollers)
	switch w.config.Wait {
	case config.WaitSleep:
		return w.config.Sleep
	case config.WaitPoll:
		w.stall.restart(time.Now())
	}
	return 0
}

// pin keeps the thread on the configured CPU, or on those of its node that the process
// may use. A node of memory alone has none, and the worker runs on any.
func (w *Worker) pin() error {
	if w.config.CPU != nil {
		return w.pinTo(fmt.Sprintf("CPU %d", *w.config.CPU), []int{*w.config.CPU})
	}
	if w.node == nil {
		return nil
	}
	cpus, err := numa.CPUs(*w.node)
	if err != nil || len(cpus) == 0 {
		w.node = nil
		return nil
	}
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return fmt.Errorf("pin worker %s: ask which CPUs it may use: %w", w.config.Name, err)
	}
	cpus = slices.DeleteFunc(cpus, func(cpu int) bool { return !may.IsSet(cpu) })
	return w.pinTo(fmt.Sprintf("NUMA node %d, where the region is", *w.node), cpus)
}

func (w *Worker) pinTo(where string, cpus []int) error {
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pin worker %s to %s: %w (is that CPU online and allowed to this process?)", w.config.Name, where, err)
	}
	return nil
}

// Node is the NUMA node the worker runs on; numa.Unknown where it may run on any.
func (w *Worker) Node() int {
	switch {
	case w.config.CPU != nil:
		return numa.OfCPU(*w.config.CPU)
	case w.node != nil:
		return *w.node
	}
	return numa.Unknown
}

// round polls each flow once.
func (w *Worker) round(now time.Time) (more bool) {
	for _, p := range w.pollers {
		more = p.Poll(now) || more
	}
	w.rounds.Add(1)
	return more
}

func (w *Worker) runCommands() {
	for w.pending.Load() > 0 {
		f := <-w.commands
		w.pending.Add(-1)
		f()
	}
}

// Do runs f on the worker's thread, between rounds, and waits for it. f must not
// block.
func (w *Worker) Do(f func() error) error {
	result := make(chan error, 1)
	w.pending.Add(1)
	select {
	case w.commands <- func() { result <- f() }:
	case <-w.done:
		return fmt.Errorf("worker %s has ended", w.config.Name)
	}
	w.wake.signal()
	select {
	case err := <-result:
		return err
	case <-w.done:
		return fmt.Errorf("worker %s has ended", w.config.Name)
	}
}

// Config is the worker's configuration.
func (w *Worker) Config() config.Worker { return w.config }

// Rounds is how many rounds the worker has made.
func (w *Worker) Rounds() uint64 { return w.rounds.Load() }

// Add has the worker poll a flow from the next round on.
func (w *Worker) Add(p Poller) error {
	return w.Do(func() error { w.pollers = append(w.pollers, p); return nil })
}

// Remove ends that.
func (w *Worker) Remove(p Poller) error {
	return w.Do(func() error { w.remove(p); return nil })
}

func (w *Worker) remove(p Poller) {
	for i, other := range w.pollers {
		if other == p {
			w.pollers = append(w.pollers[:i:i], w.pollers[i+1:]...)
			return
		}
	}
}

// Close ends the thread. Its flows must have been closed before.
func (w *Worker) Close() error {
	w.once.Do(func() {
		w.stopping.Store(true)
		w.wake.signal()
		<-w.done
		w.err = w.wake.Close()
	})
	return w.err
}

// Status is the worker's counters.
func (w *Worker) Status() status.Worker {
	return status.Worker{
		Name: w.config.Name, CPU: w.config.CPU, Node: status.Node(w.Node()), Wait: string(w.config.Wait),
		Rounds: w.rounds.Load(), Idle: w.idle.Load(), Away: w.stall.status(),
	}
}
