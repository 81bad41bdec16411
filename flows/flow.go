package flows

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/umem"
)

// Flow is one configured flow. It starts and stops without touching others. Its
// methods may be called from any goroutine.
type Flow struct {
	config config.Flow
	region *umem.Region
	worker *Worker
	share  sharing
	log    *slog.Logger

	patience time.Duration // how long stopping waits for the disk

	starting sync.Mutex // held while starting or stopping
	mu       sync.Mutex // guards what follows
	run      *run       // nil unless running
	quit     chan struct{}
	ended    chan struct{} // closed when the run has been released
	last     FlowStatus    // of the run that ended last
	state    State
	since    time.Time
	err      error
	rate     rate
}

func newFlow(c config.Flow, region *umem.Region, w *Worker, share sharing, log *slog.Logger) *Flow {
	f := &Flow{config: c, region: region, worker: w, share: share, log: log.With("flow", c.Name), state: Stopped, since: time.Now(), patience: patience}
	f.last = f.describe()
	f.ended = make(chan struct{})
	close(f.ended)
	return f
}

// Name is the flow's name.
func (f *Flow) Name() string { return f.config.Name }

// Start opens both ends and lets packets in. Starting a running flow does
// nothing.
func (f *Flow) Start() error {
	f.starting.Lock()
	defer f.starting.Unlock()
	if f.running() != nil {
		return nil
	}
	r, err := openNetworkStorage(f.config, f.region, f.share, f.log)
	if err == nil {
		err = f.launch(r)
	}
	if err != nil {
		err = fmt.Errorf("start flow %s: %w", f.config.Name, err)
		f.setState(Failed, err)
		return err
	}
	f.adopt(r)
	for _, far := range f.Status().Far {
		f.log.Warn(far)
	}
	return nil
}

// launch hands an opened run to the worker and lets packets in.
func (f *Flow) launch(r *run) error {
	if err := f.worker.Do(func() error { f.worker.add(r); return nil }); err != nil {
		return errors.Join(err, r.undo.run())
	}
	if err := r.net.Start(); err != nil {
		return errors.Join(err, f.release(r))
	}
	return nil
}

// adopt makes an opened run the flow's and watches it.
func (f *Flow) adopt(r *run) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.run, f.state, f.since, f.err, f.rate = r, Running, time.Now(), nil, rate{}
	f.quit, f.ended = make(chan struct{}), make(chan struct{})
	go f.watch(r, f.quit, f.ended)
	f.log.Info("flow runs", f.announce(r)...)
}

// announce is what the log says of a flow that starts.
func (f *Flow) announce(r *run) []any {
	g := r.net.Granted()
	a := []any{"from", f.config.From.Interface, "to", f.to(), "queues", len(r.sources), "zero_copy", g.ZeroCopy, "multi_buffer", g.MultiBuffer, "attach", g.Mode.String()}
	if why := g.WhyNotZeroCopy(); why != "" {
		a = append(a, "why_no_zero_copy", why)
	}
	if g.TagsStripped {
		a = append(a, "vlan_tags_lost", true)
	}
	if left := r.net.Unbound(); len(left) > 0 {
		a = append(a, "queues_left_to_the_kernel", left)
	}
	return append(a, "host_no_longer_sees", f.taken())
}

// taken says what the host loses sight of.
func (f *Flow) taken() string {
	if f.config.From.Filter == "" {
		return "everything arriving on " + f.config.From.Interface
	}
	return "packets arriving on " + f.config.From.Interface + " that match " + f.config.From.Filter
}

// Stop stops letting packets in, writes what was received, makes it durable and
// gives everything back. Stopping a stopped flow does nothing.
func (f *Flow) Stop() error {
	f.starting.Lock()
	defer f.starting.Unlock()
	r := f.running()
	if r == nil {
		return nil
	}
	close(f.quit)
	<-f.ended
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// Ended is closed when the flow, started before, has ended: stopped, failed or
// done.
func (f *Flow) Ended() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended
}

func (f *Flow) running() *run {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.run
}

func (f *Flow) setState(s State, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state != s {
		f.since = time.Now()
	}
	f.state, f.err = s, err
}

// release takes a run off its worker and closes everything. The block queue is
// closed on the worker's thread, to which the kernel bound it.
func (f *Flow) release(r *run) error {
	err := f.worker.Do(func() error { f.worker.remove(r); return nil })
	if r.disk != nil {
		err = errors.Join(err, f.closeQueue(r.disk.queue))
	}
	return errors.Join(err, r.undo.run())
}
