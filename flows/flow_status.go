package flows

import (
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/pipeline"
)

// Status is the present status, or the last one of a flow that does not run.
func (f *Flow) Status() FlowStatus {
	r := f.running()
	s := f.lastStatus()
	if r != nil {
		s = f.observeStatus(r)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s.State, s.Since, s.Error = f.state, f.since, ""
	if f.err != nil {
		s.Error = f.err.Error()
	}
	if f.run != nil {
		s.PPS, s.BPS = f.rate.pps, f.rate.bps
	}
	return s
}

func (f *Flow) lastStatus() FlowStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// describe is the part of the status that the configuration sets.
func (f *Flow) describe() FlowStatus {
	c := f.settings()
	return FlowStatus{
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
func (f *Flow) observeStatus(r *pipeline.Run) FlowStatus {
	s := f.describe()
	if err := r.Flow.Observe(&s); err != nil {
		f.log.Warn("status is incomplete", "why", err)
	}
	fillNodes(&s, r.From, r.To, f.worker, f.node)
	return s
}
