package flows

import (
	"errors"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
)

// ErrReloading says that another reload is under way.
var ErrReloading = errors.New("another reload is under way, and nothing is changed (try again when it has ended)")

var errClosing = errors.New("the daemon is ending")

// Reload has the daemon go on with another configuration. load reads it, and checks it with
// the running one as config.Options.Running. Flows that do not change are not touched, and those of
// which only the filter does go on with the new one. Of the others those that leave, or change, stop first, which brings what they have to where it
// belongs and gives everything up; then those that come start. If one of them cannot, all
// goes back, and those that ran run again; their counters begin anew. A flow that changes
// and was stopped by hand stays stopped. While a reload is under way another returns
// ErrReloading.
//
// Certificates, authorities and keys are read again, too, where their flows go on: sessions whose
// certificate or key is gone, or is another one, end. If one cannot be read, nothing is changed.
//
// The status is that of this reload, also beside an error.
func (d *Daemon) Reload(load func(running *config.Config) (*config.Config, error)) (ReloadStatus, error) {
	if !d.reloading.TryLock() {
		return d.reloads.busy(), ErrReloading
	}
	defer d.reloading.Unlock()
	begun := time.Now()
	d.reloads.begin(begun)
	s, err := d.reload(load)
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

func (d *Daemon) reload(load func(*config.Config) (*config.Config, error)) (ReloadStatus, error) {
	if d.closing.Load() {
		return ReloadStatus{Outcome: Refused}, errClosing
	}
	running, now := d.running()
	next, err := load(running)
	if err != nil {
		return ReloadStatus{Outcome: Refused}, err
	}
	s := ReloadStatus{Outcome: Unchanged, Plan: config.Compare(running, next)}
	c, err := d.readCredentials(next, now)
	if err != nil {
		return ReloadStatus{Outcome: Refused}, err
	}
	if s.Plan.Credentials = c.names(next); s.Plan.Empty() {
		return s, nil
	}
	d.options.Log.Info("reloading the configuration", words(&s.Plan)...)
	w := d.newSwap(running, next, now, &s.Plan)
	if s.Outcome, err = w.run(); s.Outcome != Applied {
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
	c, err := d.readCredentials(next, now)
	p.Credentials = c.names(next)
	return p, err
}

// tell logs how a reload ended.
func (d *Daemon) tell(s *ReloadStatus) {
	what := append([]any{"outcome", s.Outcome, "generation", s.Generation, "seconds", s.Seconds}, words(&s.Plan)...)
	if len(s.Ended) > 0 {
		what = append(what, "sessions_ended", s.Ended)
	}
	switch {
	case s.Error == "":
		d.options.Log.Info("configuration reloaded", what...)
	case s.Outcome.Good():
		d.options.Log.Warn("configuration reloaded", append(what, "but", s.Error)...)
	default:
		d.options.Log.Error("configuration not reloaded", append(what, "why", s.Error)...)
	}
}

// words are a plan for the log.
func words(p *config.Plan) []any {
	return []any{"kept", p.Kept, "changed", p.Changed, "filters", p.Filters, "subsystems", p.Subsystems, "added", p.Added, "removed", p.Removed, "credentials", p.Credentials, "settings", p.Settings}
}
