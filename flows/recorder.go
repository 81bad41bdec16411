package flows

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

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

// noteLosses records and logs what a running flow has lost. It is called once a second.
func (f *Flow) noteLosses(r *pipeline.Run) {
	if f.losses.skip > 0 {
		f.losses.skip--
		return
	}
	f.losses.skip = int(f.seconds.flows.Load()) / observedFlows
	s := f.describe()
	if r.Flow.Observe(&s) == nil { // else the next status logs it
		f.countLosses(&s)
	}
}

// countLosses records and logs what a status has in addition.
func (f *Flow) countLosses(s *status.Flow) {
	if now := time.Now(); f.losses.note(f.trace, f.log, s, now) {
		f.lostAt.Store(now.UnixNano())
	}
}

// losses remembers what a run has lost so far, and what of that is recorded and logged. It belongs to one goroutine.
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
	log          lossLog
}

// note records losses that a status has in addition: when they begin, and again each time when they have doubled.
// A flow that loses packets all the time would else push out everything that it did before. It logs them, too, and when they
// end. It reports whether there are more.
func (l *losses) note(r *trace.Recorder, log *slog.Logger, s *status.Flow, now time.Time) (more bool) {
	for reason, n := range s.Dropped {
		if status.OnPurpose(reason) {
			continue
		}
		if c, grew := l.count(r, loss{trace.Lost, reason}, n); c != nil {
			more = more || grew
			c.log.update(n, grew, now, log.With("reason", reason), s.Why(reason).String())
		}
	}
	for reason, n := range s.DiskErrors { // the flow logs each
		l.count(r, loss{trace.DiskError, reason}, n)
	}
	if s.Sends == nil {
		return more
	}
	byReason := make(map[string]uint64)
	for i := range s.Sends.Peers {
		for reason, n := range s.Sends.Peers[i].Dropped {
			byReason[reason] += n
		}
	}
	for reason, n := range byReason {
		if c, grew := l.count(r, loss{trace.PeerLost, reason}, n); c != nil {
			more = more || grew
			c.log.update(n, grew, now, log.With("reason", reason), "the peer is away, or slower than the flow: see unifiedd status")
		}
	}
	return more
}

// count records a loss, and reports whether there is more of it than the last time. It returns nil if nothing has been
// lost.
func (l *losses) count(r *trace.Recorder, what loss, total uint64) (c *lossCount, grew bool) {
	if c = l.seen[what]; c == nil {
		if total == 0 {
			return nil, false
		}
		if l.seen == nil {
			l.seen = make(map[loss]*lossCount)
		}
		c = new(lossCount)
		l.seen[what] = c
	}
	grew = total > c.total
	if grew && (!c.grew || total >= 2*c.noted) || !grew && total > c.noted {
		r.Note(what.kind, total-c.noted, what.reason)
		c.noted = total
	}
	c.total, c.grew = total, grew
	return c, grew
}

// lossLog logs losses of one reason: when they begin, each time when they have doubled since then, and when they end.
type lossLog struct {
	on           bool      // they have begun, and not ended
	before       uint64    // lost before they began
	seen, logged uint64    // lost at the last look, and since they began when the last line said it
	last         time.Time // when there were more
}

// lossEnd is how long nothing is lost until losses have ended. A flow that loses packets every second second has one line for all
// of them.
const lossEnd = 10 * time.Second

func (l *lossLog) update(total uint64, grew bool, now time.Time, log *slog.Logger, remedy string) {
	switch lost := total - l.before; {
	case grew && !l.on:
		l.on, l.before, l.logged = true, l.seen, total-l.seen
		log.Warn("packets or messages are lost", "lost", l.logged, "remedy", remedy)
	case grew && lost >= 2*l.logged:
		l.logged = lost
		log.Warn("packets or messages are still lost", "lost", lost, "remedy", remedy)
	case !grew && l.on && now.Sub(l.last) >= lossEnd:
		l.on = false
		log.Warn("no more packets or messages are lost", "lost", lost)
	}
	l.seen = total
	if grew {
		l.last = now
	}
}
