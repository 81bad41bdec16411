package pipeline

import (
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/stage"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/umem"
)

// Stages change packets, or messages, in place.
type Stages struct{ chain *stage.Chain }

// NewStages makes the chain of a configuration, without its sum.
func NewStages(all []config.Stage) (*Stages, error) {
	var steps []stage.Step
	for _, c := range all {
		switch {
		case c.Set != nil:
			steps = append(steps, stage.Step{Set: (*stage.Set)(c.Set)})
		case c.Sequence != nil:
			steps = append(steps, stage.Step{Sequence: (*stage.Sequence)(c.Sequence)})
		case c.Timestamp != nil:
			steps = append(steps, stage.Step{Timestamp: (*stage.Timestamp)(c.Timestamp)})
		}
	}
	chain, err := stage.New(steps)
	return &Stages{chain}, err
}

// Apply changes whole packets. now is when they are sent on, in nanoseconds since 1970.
func (s *Stages) Apply(region *umem.Region, fs []umem.Frame, now uint64) {
	for done := 0; done < len(fs); {
		n, _ := umem.PacketLen(fs[done:])
		if n == 0 {
			return
		}
		s.chain.Apply(region.Bytes(fs[done]), now)
		done += n
	}
}

// Observe adds the stages to a status.
func (s *Stages) Observe(to *status.Flow) {
	for _, st := range s.chain.Stats() {
		to.Stages = append(to.Stages, status.Stage(st))
	}
}
