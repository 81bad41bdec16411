// Package state is a sink that updates a state, which programs and RDMA peers read.
package state

import (
	"errors"
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/state"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/umem"
)

var _ pipeline.Sink = (*Sink)(nil)

// Sink takes every message, and frees its frame at once: an update is visible when Write
// returns.
type Sink struct {
	region  *umem.Region
	free    *umem.FreeList
	state   *state.State
	header  uint32 // bytes of a message before its payload
	refused map[string]uint64
	copied  counter.Counter
	times   pipeline.FrameTimes
}

// Open takes the flow's state until the flow is closed. headers says that messages begin with those of package protocol.
func Open(e *pipeline.Env, headers bool) (*Sink, error) {
	name := e.Flow.To.State
	one := e.Shared.States.Find(name)
	if one == nil {
		return nil, fmt.Errorf("there is no state %s (add it to attach.states, and restart the daemon)", name)
	}
	release, err := one.Use()
	if err != nil {
		return nil, err
	}
	e.Undo.Add(release)
	s := &Sink{region: e.Region, state: one, refused: one.Refused()}
	if headers {
		s.header = protocol.HeaderLen
	}
	return s, nil
}

// Position returns the position of the state's last update.
func (s *Sink) Position() uint64 { return s.state.Position() }

// SetFree sets the list to which frames are pushed: that of the source, which is opened after the sink.
func (s *Sink) SetFree(free *umem.FreeList) { s.free = free }

func (s *Sink) Write(b *pipeline.Batch, now time.Time) bool {
	fs := b.Held()
	if len(fs) == 0 {
		return true
	}
	at, copied := uint64(now.UnixNano()), 0
	run := s.times.Done.Run()
	for i := range fs {
		copied += s.state.Apply(s.region.Bytes(fs[i])[s.header:])
		run.Record(pipeline.Elapsed(at, pipeline.Arrival(s.region.Side(fs[i]), at)))
	}
	run.End()
	s.state.Publish()
	s.copied.Add(uint64(copied))
	s.free.Push(fs...)
	b.Drop(len(fs))
	return true
}

// Update applies updates of a log, whose positions become the state's.
func (s *Sink) Update(all []state.Update, now time.Time) {
	at, copied := uint64(now.UnixNano()), 0
	run := s.times.Done.Run()
	for i := range all {
		s.state.Skip(all[i].Position - 1)
		copied += s.state.Apply(all[i].Message)
		run.Record(pipeline.Elapsed(at, min(at, all[i].Stamp)))
	}
	run.End()
	s.state.Publish()
	s.copied.Add(uint64(copied))
}

// Observe implements pipeline.Sink. The counters of refused updates are those of this run of the flow.
func (s *Sink) Observe(to *status.Flow) error {
	st := s.state.Stats()
	to.Updates = &status.Updates{State: st.Name, Position: st.Position}
	for why, n := range st.Refused {
		to.Dropped[why] = n - s.refused[why]
	}
	to.CopiedBytes["state"] = s.copied.Load()
	to.FrameTimes = s.times.Status()
	return nil
}

func (s *Sink) Announce() []any {
	return []any{"state", s.state.Name(), "position", s.state.Position() + 1}
}

func (s *Sink) Begin() error {
	if s.free == nil {
		return errors.New("the sink of a state has no list of free frames")
	}
	return nil
}
