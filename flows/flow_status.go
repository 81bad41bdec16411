package flows

import (
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/status"
)

// Status is the present status, or the last one of a flow that does not run.
func (f *Flow) Status() status.Flow {
	r := f.running()
	s := f.lastStatus()
	if r != nil {
		s = f.observeStatus(r)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if r != nil && f.run == nil { // it ended meanwhile, and has counted what it lost
		s = f.last
	}
	s.State, s.Since, s.Error, s.Cause = f.state, f.since, "", ""
	s.Restarts, s.NextStart = f.begun, time.Time{}
	if f.again != nil {
		s.NextStart = f.again.next
	}
	if f.err != nil {
		s.Error, s.Cause = f.err.Error(), causeOf(f.err)
	}
	if at := f.lostAt.Load(); at != 0 {
		s.LostAt = time.Unix(0, at)
	}
	if f.run != nil {
		s.PPS, s.BPS = f.rate.pps, f.rate.bps
	}
	return s
}

func (f *Flow) lastStatus() status.Flow {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// describe is the part of the status that the configuration sets.
func (f *Flow) describe() status.Flow {
	c := f.settings()
	return status.Flow{
		Name: c.Name, Kind: string(c.Kind()), From: pipeline.Origin(c.From), To: pipeline.Destination(c.To),
		ConfiguredAs: c.Named,
		Worker:       c.Worker, Layout: string(c.To.Layout), Filter: c.From.Wanted(),
		Passed: map[string]uint64{}, Dropped: map[string]uint64{}, CopiedBytes: map[string]uint64{}, KernelBytes: map[string]uint64{}, DiskErrors: map[string]uint64{},
	}
}

// settings are the flow's settings as they are now.
func (f *Flow) settings() config.Flow {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.config
}

// observeStatus reads the counters of a run.
func (f *Flow) observeStatus(r *pipeline.Run) status.Flow {
	s := f.describe()
	if err := r.Flow.Observe(&s); err != nil {
		f.log.Warn("status is incomplete", "err", err)
	}
	for _, g := range f.joined.States() {
		s.Joined = append(s.Joined, joinStatus(g))
	}
	fillNodes(&s, r.From, r.To, f.worker, f.node)
	return s
}
