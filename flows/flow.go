package flows

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/trace"
	"github.com/unifiedd/unifiedd/flows/worker"
	"github.com/unifiedd/unifiedd/internal/multicast"
	"github.com/unifiedd/unifiedd/umem"
)

// Flow is one configured flow. It starts and stops without touching others. Any goroutine may call
// its methods.
type Flow struct {
	config config.Flow // written with starting and mu held, read with one of them
	region *umem.Region
	worker *worker.Worker
	share  func(config.Flow) pipeline.Shared // what it shares with other flows, as it is now
	node   int                               // NUMA node of the region
	log    *slog.Logger
	trace  *trace.Recorder // nil: nothing is recorded

	seconds      *seconds      // of the daemon
	drainTimeout time.Duration // how long stopping waits for the disk

	starting sync.Mutex  // held while starting or stopping
	leaving  atomic.Bool // a reload removes it: it must not start again
	stopping atomic.Bool // it was stopped
	before   uint64      // the log must end before this position; 0: where it ends
	restart  bool        // it may start again by itself after a failure
	deposed  pipeline.Deposed
	halt     *pipeline.Halt // the kill switch, which outlives a reload
	joined   multicast.Set  // the multicast groups, while the flow receives
	losses   losses         // owned by the goroutine that starts or watches a run
	lostAt   atomic.Int64   // when something was last lost, in ns since 1970; 0: never
	mu       sync.Mutex     // guards the fields below
	run      *pipeline.Run  // nil unless running
	quit     chan struct{}
	ended    chan struct{} // closed when the run has been released
	outset   *outset       // of the last run
	last     status.Flow   // of the last run
	state    status.State
	since    time.Time
	err      error
	rate     rate
	ran      time.Time     // when the last run began
	again    *retry        // nil: it is not tried to start it again
	wait     time.Duration // before the next attempt; 0: the shortest
	retried  bool          // it was tried when a reload took it away
	failure  error         // why
	begun    uint64        // how often it has started again by itself
}

func newFlow(c config.Flow, d *Daemon) *Flow {
	f := &Flow{
		config: c, region: d.region, worker: d.worker(c.Worker), share: d.share, node: d.placed.node,
		log: d.options.Log.With("flow", c.Name), state: status.Stopped, since: time.Now(), seconds: d.seconds, drainTimeout: drainTimeout, restart: d.options.Restart,
	}
	f.trace = d.recorder(c.Name)
	f.halt = d.halt(c.Name)
	f.last = f.describe()
	f.ended = make(chan struct{})
	close(f.ended)
	return f
}

// Name is the flow's name.
func (f *Flow) Name() string { return f.config.Name }

// Start opens both ends and lets packets in. It does nothing if the flow runs. If the flow has failed and was to start
// again by itself, an error does not change that.
func (f *Flow) Start() error {
	retried := f.endRetry()
	f.starting.Lock()
	defer f.starting.Unlock()
	f.stopping.Store(false)
	err := f.start()
	if err != nil && retried && !f.leaving.Load() {
		f.startAgain(err, 0)
	}
	return err
}

// start is Start with f.starting held.
func (f *Flow) start() error {
	if f.running() != nil {
		return nil
	}
	if f.leaving.Load() {
		return fmt.Errorf("start flow %s: a reload takes it away", f.config.Name)
	}
	r, err := f.open()
	if err == nil {
		err = f.launch(r)
	}
	if err != nil {
		err = fmt.Errorf("start flow %s: %w", f.config.Name, err)
		f.setState(status.Failed, err)
		return err
	}
	f.setRun(r)
	for _, far := range f.Status().Far {
		f.log.Warn(far)
	}
	return nil
}

// shared returns what the flow shares with others, as it is now. f.mu must not be held.
func (f *Flow) shared() pipeline.Shared {
	f.mu.Lock()
	c := f.config
	f.mu.Unlock()
	return f.share(c)
}

// env returns the environment in which the flow is opened.
func (f *Flow) env() *pipeline.Env {
	return &pipeline.Env{
		Flow: f.config, Trace: f.trace, Region: f.region, Shared: f.shared(), Do: f.worker.Do, Events: f.worker.Config().Wait != config.WaitSpin, Log: f.log,
	}
}

// open opens both ends of the flow.
func (f *Flow) open() (*pipeline.Run, error) {
	e := f.env()
	defer e.Undo.Run()
	e.Before, f.before, e.Deposed, e.Halt = f.before, 0, &f.deposed, f.halt
	return open(e)
}

// launch adds an open run to the worker and lets packets in.
func (f *Flow) launch(r *pipeline.Run) error {
	f.trace.Restart()
	kind := f.config.Kind()
	if err := f.worker.Add(r.Poller, worker.Needs{Bound: kind.UsesDisk(), Prompt: !kind.Moderated()}); err != nil {
		return errors.Join(err, r.Close())
	}
	err := r.Flow.Begin()
	if err == nil {
		err = f.worker.Do(func() error { return nil }) // a worker that waits asks for the deadline of a flow that has begun
	}
	if err == nil {
		err = f.joined.Open(groups(f.config.From)) // now that their packets find the flow
	}
	if err != nil {
		return errors.Join(err, f.release(r))
	}
	return nil
}

// setRun makes an open run the flow's and watches it.
func (f *Flow) setRun(r *pipeline.Run) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.run, f.state, f.since, f.err, f.rate = r, status.Running, time.Now(), nil, rate{}
	f.quit, f.ended, f.ran = make(chan struct{}), make(chan struct{}), time.Now()
	f.losses, f.outset = losses{}, newOutset()
	f.lostAt.Store(0)
	f.noteState(status.Running, nil)
	go f.watch(r, f.outset, f.quit, f.ended)
	f.log.Info("flow runs", append([]any{"from", pipeline.Origin(f.config.From), "to", pipeline.Destination(f.config.To)}, r.Flow.Announce()...)...)
}

// Stop stops receiving, finishes processing what was received and releases everything. It does nothing if the
// flow is stopped. A flow that has failed does not start again by itself then.
func (f *Flow) Stop() error {
	f.stopping.Store(true) // also if it is about to start again
	retried := f.endRetry()
	f.starting.Lock()
	defer f.starting.Unlock()
	r := f.running()
	if r == nil {
		if retried {
			f.setState(status.Stopped, nil)
		}
		return nil
	}
	close(f.quit)
	<-f.ended
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// Ended returns a channel that is closed when the flow, which was started, has ended: stopped, failed or
// done.
func (f *Flow) Ended() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended
}

func (f *Flow) running() *pipeline.Run {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.run
}

// runningKind returns the part of the running flow that is specific to its kind, or nil.
func (f *Flow) runningKind() pipeline.Flow {
	if r := f.running(); r != nil {
		return r.Flow
	}
	return nil
}

func (f *Flow) setState(s status.State, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state != s {
		f.since = time.Now()
		f.noteState(s, err)
	}
	f.state, f.err = s, err
}

// release takes a run off its worker and closes it.
func (f *Flow) release(r *pipeline.Run) error {
	err := errors.Join(f.worker.Remove(r.Poller), f.closeQueue(r))
	f.trace.Stop()
	return errors.Join(err, r.Close())
}
