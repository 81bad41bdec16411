package flows

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/trace"
)

// openTrace opens the directory of the flight recorder. A daemon that cannot record says so, and runs.
func (d *Daemon) openTrace(undo *pipeline.Cleanup) {
	c := d.config.Trace
	if d.options.Trace == "" || c.Events == 0 {
		return
	}
	var err error
	if d.trace, err = trace.Open(d.options.Trace, d.options.Version, uint32(c.Events)); err != nil {
		d.noTrace(err)
		return
	}
	undo.Add(d.trace.Close)
}

// noTrace notes why flows are not recorded.
func (d *Daemon) noTrace(err error) {
	level := slog.LevelWarn
	if errors.Is(err, trace.ErrNotInMemory) { // as whoever chose the control socket wants it
		level = slog.LevelInfo
	}
	d.options.Log.Log(context.Background(), level, "what flows do is not recorded: unifiedd trace will not show it", "err", err)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.traceErr = errors.Join(d.traceErr, err)
}

// recorder returns the recorder of a flow, or nil.
func (d *Daemon) recorder(flow string) *trace.Recorder {
	r, err := d.trace.Recorder(flow)
	if err != nil {
		d.noTrace(err)
	}
	return r
}

// keepRecorders closes the recorders of flows that are not there any more.
func (d *Daemon) keepRecorders() {
	names := d.names()
	if err := d.trace.Keep(func(flow string) bool { return slices.Contains(names, flow) }); err != nil {
		d.noTrace(err)
	}
}

// traceStatus describes the flight recorder; nil: the daemon has none.
func (d *Daemon) traceStatus() *status.Trace {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.trace == nil && d.traceErr == nil {
		return nil
	}
	s := &status.Trace{Directory: d.options.Trace, Events: d.config.Trace.Events}
	if d.traceErr != nil {
		s.Error = d.traceErr.Error()
	}
	return s
}

// noteState records that a flow is in another state.
func (f *Flow) noteState(s status.State, err error) {
	text := string(s)
	if err != nil {
		text += ": " + err.Error()
	}
	f.trace.Note(trace.State, 0, text)
}

// observedFlows is how many flows of a daemon are looked at for losses each second, about.
const observedFlows = 100

// noteLosses records what a running flow has lost. It is called once a second.
func (f *Flow) noteLosses(r *pipeline.Run) {
	if f.trace == nil {
		return
	}
	if f.losses.skip > 0 {
		f.losses.skip--
		return
	}
	f.losses.skip = len(f.shared().Config.Flows) / observedFlows
	s := f.describe()
	if r.Flow.Observe(&s) == nil { // else the next status logs it
		f.losses.note(f.trace, &s)
	}
}

// losses remembers what a run has lost so far, and what of that is recorded. It belongs to one goroutine.
type losses struct {
	skip int // seconds
	seen map[loss]*lossCount
}

// loss is what is counted: a kind and a reason.
type loss struct {
	kind   trace.Kind
	reason string
}

// lossCount is how many were lost at the last look, how many of those are recorded, and whether they had become more.
type lossCount struct {
	total, noted uint64
	grew         bool
}

// onPurpose are reasons for which packets are not received on purpose.
var onPurpose = []string{"filter_dropped", "beyond_count", "duplicate", "not_matched", "other_link_type"}

// note records losses that a status has in addition: when they begin, and again each time when they have doubled.
// A flow that loses packets all the time would else push out everything that it did before.
func (l *losses) note(r *trace.Recorder, s *status.Flow) {
	if r == nil {
		return
	}
	for reason, n := range s.Dropped {
		if !slices.Contains(onPurpose, reason) {
			l.count(r, loss{trace.Lost, reason}, n)
		}
	}
	for reason, n := range s.DiskErrors {
		l.count(r, loss{trace.DiskError, reason}, n)
	}
	if s.Sends == nil {
		return
	}
	byReason := make(map[string]uint64)
	for i := range s.Sends.Peers {
		for reason, n := range s.Sends.Peers[i].Dropped {
			byReason[reason] += n
		}
	}
	for reason, n := range byReason {
		l.count(r, loss{trace.PeerLost, reason}, n)
	}
}

func (l *losses) count(r *trace.Recorder, what loss, total uint64) {
	c := l.seen[what]
	if c == nil {
		if total == 0 {
			return
		}
		if l.seen == nil {
			l.seen = make(map[loss]*lossCount)
		}
		c = new(lossCount)
		l.seen[what] = c
	}
	grew := total > c.total
	if grew && (!c.grew || total >= 2*c.noted) || !grew && total > c.noted {
		r.Note(what.kind, total-c.noted, what.reason)
		c.noted = total
	}
	c.total, c.grew = total, grew
}
