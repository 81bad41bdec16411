package flows

import (
	"errors"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
)

// ErrReloading is returned while another reload is under way.
var ErrReloading = errors.New("another reload is under way, and nothing is changed (try again when it has ended)")

var errClosing = errors.New("the daemon is ending")

// Reload changes to another configuration. load reads it, and checks it with the running one as
// config.Options.Running.
//
// Flows that do not change continue. If only the filter, namespaces, hosts or members of a flow change, it
// continues with the new ones. Flows that are removed or changed otherwise stop first; then the new ones start. If a
// flow cannot start, Reload rolls everything back, and flows that ran run again with counters from zero. A
// changed flow that was stopped by hand stays stopped.
//
// Reload reads certificates, authorities and keys again, also for flows that continue. It ends sessions whose
// certificate or key is gone or has changed, and waits up to 5 s until flows have closed those over TLS. If it cannot read a file, it changes nothing.
//
// While a reload is under way, another one returns ErrReloading. The status describes this reload, also if
// there is an error.
func (d *Daemon) Reload(load func(running *config.Config) (*config.Config, error)) (status.Reload, error) {
	if !d.reloading.TryLock() {
		return d.reloads.busy(), ErrReloading
	}
	defer d.reloading.Unlock()
	begun := time.Now()
	d.reloads.begin(begun)
	s, err := d.reload(load)
	d.keepRecorders()
	s.At = time.Now()
	s.Seconds = s.At.Sub(begun).Seconds()
	if err != nil {
		s.Error = err.Error()
	}
	s = d.reloads.end(s)
	d.tell(&s)
	if s.Outcome.Good() {
		err = nil // it is a warning
	}
	return s, err
}

func (d *Daemon) reload(load func(*config.Config) (*config.Config, error)) (status.Reload, error) {
	if d.closing.Load() {
		return status.Reload{Outcome: status.Refused}, errClosing
	}
	running, now := d.running()
	next, err := load(running)
	if err != nil {
		return status.Reload{Outcome: status.Refused}, err
	}
	s := status.Reload{Outcome: status.Unchanged, Plan: config.Compare(running, next)}
	d.resized(&s.Plan)
	c, err := d.readCredentials(next, now)
	if err != nil {
		return status.Reload{Outcome: status.Refused}, err
	}
	if s.Plan.Credentials = c.names(next); s.Plan.Empty() {
		return s, nil
	}
	d.options.Log.Info("reloading the configuration", words(&s.Plan)...)
	w := d.newTransaction(running, next, now, &s.Plan)
	if s.Outcome, err = w.run(); s.Outcome != status.Applied {
		return s, err
	}
	var lost error
	s.Ended, lost = c.use(d)
	return s, errors.Join(err, lost)
}

// Plan is what Reload would do with a configuration.
func (d *Daemon) Plan(next *config.Config) (config.Plan, error) {
	running, now := d.running()
	p := config.Compare(running, next)
	d.resized(&p)
	c, err := d.readCredentials(next, now)
	p.Credentials = c.names(next)
	return p, err
}

// tell logs how a reload ended.
func (d *Daemon) tell(s *status.Reload) {
	what := append([]any{"outcome", s.Outcome, "generation", s.Generation, "seconds", s.Seconds}, words(&s.Plan)...)
	if len(s.Ended) > 0 {
		what = append(what, "sessions_ended", s.Ended)
	}
	switch {
	case s.Error == "":
		d.options.Log.Info("configuration reloaded", what...)
	case s.Outcome.Good():
		d.options.Log.Warn("configuration reloaded", append(what, "err", s.Error)...)
	default:
		d.options.Log.Error("configuration not reloaded", append(what, "err", s.Error)...)
	}
}

// words are a plan as attributes for the log.
func words(p *config.Plan) []any {
	return []any{"kept", p.Kept, "changed", p.Changed, "filters", p.Filters, "subsystems", p.Subsystems, "groups", p.Groups, "added", p.Added, "removed", p.Removed, "credentials", p.Credentials, "settings", p.Settings}
}
