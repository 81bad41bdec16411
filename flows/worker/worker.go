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

// Poller is a flow as its worker sees it. All methods run on the worker's thread, and none blocks.
type Poller interface {
	// Poll moves available data, and reports whether more is already waiting.
	Poll(now time.Time) (more bool)
	// FDs appends the descriptors that become readable when there is something to do.
	FDs(dst []unix.PollFd) []unix.PollFd
	// Deadline returns when to call Poll again even if no descriptor is readable.
	Deadline(now time.Time) time.Time
}

// Needs are what a flow needs of its worker.
type Needs struct {
	Bound  bool // all polls must be on the thread of the first one, as with a queue of a disk
	Prompt bool // somebody waits for what the flow does: the worker must not sleep past an event
}

// Worker is one OS thread that polls its flows in turn. Nothing else runs on it.
type Worker struct {
	config config.Worker
	node   *int // NUMA node to stay on, if the configuration names no CPU
	wait   *waiter

	commands chan func() // run between rounds
	pending  atomic.Int32
	wake     *eventfd
	pollers  []Poller        // owned by the thread
	needs    []Needs         // of each poller; owned by the thread
	all      Needs           // what at least one of them needs; owned by the thread
	pinned   *unix.CPUSet    // CPUs of the thread; nil: those of the process
	others   unix.CPUSet     // CPUs of the process
	rounds   counter.Counter // calls of all flows in turn
	idle     counter.Counter // rounds after which the thread waited
	stall    stalls
	quantum  quantum // owned by the thread

	stopping atomic.Bool
	done     chan struct{}
	once     sync.Once
	err      error // result of Close
}

// New starts a worker. A worker without a configured CPU stays on the CPUs of node, unless node is
// nil. The caller closes it.
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

// run runs on the worker's thread.
func (w *Worker) run(started chan<- error) {
	defer close(w.done)
	runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
	if err := w.pin(); err != nil {
		started <- err
		return
	}
	defer w.setCPUs(&w.others) // the process's first thread does not end with this goroutine
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
			w.yield()
		}
		event := false
		if set, event = w.wait.wait(w.pollers, w.all.Prompt); event {
			w.stall.restart(time.Now())
			set = 0
		}
	}
}

// Node returns the NUMA node of the thread, or numa.Unknown.
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

// Do runs f on the worker's thread between two rounds and returns its error. f must not block. Any
// goroutine but the worker's may call it.
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

// Rounds returns how often the worker has polled all flows.
func (w *Worker) Rounds() uint64 { return w.rounds.Load() }

// Add makes the worker poll p from the next round on. Any goroutine may call it.
func (w *Worker) Add(p Poller, n Needs) error {
	return w.Do(func() error {
		w.pollers, w.needs = append(w.pollers, p), append(w.needs, n)
		w.sum()
		return nil
	})
}

// Remove makes the worker stop polling p. Any goroutine may call it.
func (w *Worker) Remove(p Poller) error {
	return w.Do(func() error { w.remove(p); return nil })
}

func (w *Worker) remove(p Poller) {
	if i := slices.Index(w.pollers, p); i >= 0 {
		w.pollers, w.needs = slices.Delete(w.pollers, i, i+1), slices.Delete(w.needs, i, i+1)
		w.sum()
	}
}

// sum finds what at least one poller needs: the most impatient one decides how the worker waits.
func (w *Worker) sum() {
	w.all = Needs{}
	for _, n := range w.needs {
		w.all.Bound, w.all.Prompt = w.all.Bound || n.Bound, w.all.Prompt || n.Prompt
	}
}

// Close ends the thread. The worker must have no pollers.
func (w *Worker) Close() error {
	w.once.Do(func() {
		w.stopping.Store(true)
		w.wake.signal()
		<-w.done
		w.err = w.wake.Close()
	})
	return w.err
}

// Status returns the worker's counters. Any goroutine may call it.
func (w *Worker) Status() status.Worker {
	return status.Worker{
		Name: w.config.Name, CPU: w.config.CPU, Node: status.Node(w.Node()), Wait: string(w.config.Wait),
		Rounds: w.rounds.Load(), Idle: w.idle.Load(), Away: w.stall.status(),
	}
}
