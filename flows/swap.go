package flows

import (
	"errors"
	"slices"
	"sync"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/status"
)

// transaction is one change of a daemon's flows. It is made as a whole or rolled back. It belongs to one
// goroutine.
type transaction struct {
	daemon     *Daemon
	old, next  *config.Config
	had, flows []*Flow // before and after, in the order of their configurations
	filters    []*Flow // continue with another filter
	subsystems []*Flow // continue with other namespaces or hosts
	groups     []*Flow // continue with other members
	stopping   []*Flow // stop
	ran        []*Flow // those of stopping that ran
	starting   []*Flow // start
	started    []*Flow
}

// newTransaction plans the change from one configuration, whose flows are had, to the next.
func (d *Daemon) newTransaction(old, next *config.Config, had []*Flow, plan *config.Plan) *transaction {
	w := &transaction{daemon: d, old: old, next: next, had: had}
	before := make(map[string]*Flow)
	for _, f := range had {
		before[f.Name()] = f
		switch {
		case slices.Contains(plan.Filters, f.Name()) && f.Status().State.Up():
			w.filters = append(w.filters, f)
		case slices.Contains(plan.Subsystems, f.Name()) && f.Status().State.Up():
			w.subsystems = append(w.subsystems, f)
		case slices.Contains(plan.Groups, f.Name()) && f.Status().State.Up():
			w.groups = append(w.groups, f)
		case !slices.Contains(plan.Kept, f.Name()):
			w.stopping = append(w.stopping, f)
		}
	}
	for _, c := range next.Flows {
		f := before[c.Name]
		if f == nil || slices.Contains(w.stopping, f) {
			stopped := f != nil && f.Status().State == status.Stopped
			f = newFlow(c, d)
			if !stopped {
				w.starting = append(w.starting, f)
			}
		}
		w.flows = append(w.flows, f)
	}
	return w
}

// run makes the change or rolls it back. If the change was made, the error says what flows lost when they
// stopped. Filters are changed first: an error there has touched nothing else.
func (w *transaction) run() (status.Outcome, error) {
	if err := w.filter(w.next); err != nil {
		return w.unfilter(status.RolledBack, err)
	}
	lost := w.stop()
	w.daemon.install(w.next, w.flows)
	w.daemon.enforceQuota(w.kept())
	if err := w.start(); err != nil {
		return w.back(errors.Join(err, lost))
	}
	return status.Applied, lost
}

// stop stops flows together, so that one with a slow disk does not keep the others waiting. Its error says
// what they lost.
func (w *transaction) stop() error {
	errs := make([]error, len(w.stopping))
	var stopping sync.WaitGroup
	for i, f := range w.stopping {
		if f.Status().State.Up() {
			w.ran = append(w.ran, f)
		}
		stopping.Go(func() { errs[i] = f.leave() })
	}
	stopping.Wait()
	return errors.Join(errs...)
}

// start starts flows, up to the first that cannot start.
func (w *transaction) start() error {
	for _, f := range w.starting {
		if w.daemon.closing.Load() {
			return errClosing
		}
		if err := f.Start(); err != nil {
			return err
		}
		w.started = append(w.started, f)
	}
	return nil
}

// back rolls the change back and starts the flows again that ran before. why is the error that caused it.
func (w *transaction) back(why error) (status.Outcome, error) {
	errs := []error{why}
	for _, f := range slices.Backward(w.started) {
		errs = append(errs, f.leave())
	}
	for _, f := range w.stopping {
		f.stay()
	}
	w.daemon.install(w.old, w.had)
	outcome := status.RolledBack
	for _, f := range w.ran {
		if w.daemon.closing.Load() {
			break
		}
		if err := f.Start(); err != nil {
			errs, outcome = append(errs, err), status.Broken
		}
	}
	return w.unfilter(outcome, errors.Join(errs...))
}

// filter gives flows the filters, namespaces, hosts and members of a configuration, up to the first that
// refuses, and their order among flows that share an interface.
func (w *transaction) filter(c *config.Config) error {
	for _, f := range w.filters {
		if err := f.setFilter(c.Flow(f.Name()).From); err != nil {
			return err
		}
	}
	for _, f := range w.subsystems {
		if err := f.updateNamespaces(c.Flow(f.Name()).To); err != nil {
			return err
		}
	}
	for _, f := range w.groups {
		if err := f.updateMembers(c.Flow(f.Name()).To); err != nil {
			return err
		}
	}
	for _, f := range w.had {
		if at := device.Rank(c, f.Name()); at >= 0 {
			if err := f.setRank(at); err != nil {
				return err
			}
		}
	}
	return nil
}

// unfilter gives flows the filters, namespaces, hosts and members that they had.
func (w *transaction) unfilter(outcome status.Outcome, why error) (status.Outcome, error) {
	if err := w.filter(w.old); err != nil {
		return status.Broken, errors.Join(why, err)
	}
	return outcome, why
}

// kept returns the flows that continue, also those with another filter or other namespaces.
func (w *transaction) kept() (all []*Flow) {
	for _, f := range w.flows {
		if slices.Contains(w.had, f) {
			all = append(all, f)
		}
	}
	return all
}

// leave stops the flow. It cannot start again before stay.
func (f *Flow) leave() error {
	f.leaving.Store(true)
	f.mu.Lock()
	f.retried, f.failure = f.again != nil, f.err
	f.mu.Unlock()
	return f.Stop()
}

// stay takes leave back. A flow that was to start again by itself is to do so again.
func (f *Flow) stay() {
	f.leaving.Store(false)
	f.mu.Lock()
	retried, why := f.retried, f.failure
	f.mu.Unlock()
	if retried {
		f.stopping.Store(false)
		f.setState(status.Failed, why)
		f.startAgain(why, 0)
	}
}
