package afxdp

import (
	"errors"
	"path/filepath"

	"github.com/unifiedd/unifiedd/bpf/filter"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/xdp"
)

// steering describes how cards steer a flow's packets to its queues.
type steering struct {
	rules  []string // for the status
	whyNot string   // why the card does not steer, if steering is preferred
}

// SteeringDir returns the directory in which a daemon records its rules in cards.
func SteeringDir(c *config.Config) string { return filepath.Dir(c.Control.Socket) }

// openSteering makes the card of an interface steer the flow's packets to its queues, if the
// configuration asks for it.
func (s *Source) openSteering(e *pipeline.Env, name string) error {
	from := e.Flow.From
	if from.Steer == "" {
		return nil
	}
	expr, err := filter.Parse(from.Filter)
	if err != nil {
		return err
	}
	tuples, err := expr.Tuples()
	if err != nil {
		return err
	}
	queues := make([]uint32, len(from.Queues))
	for i, q := range from.Queues {
		queues[i] = uint32(q)
	}
	card, err := xdp.Steer(name, tuples, queues, e.Shared.Notes)
	if errors.Is(err, xdp.ErrNoSteering) && from.Steer == config.SteerPrefer {
		s.steering.whyNot = err.Error()
		return nil
	}
	if err != nil {
		return err
	}
	e.Undo.Add(card.Close)
	for _, rule := range card.Rules() {
		if from.Interfaces != nil {
			rule = name + ": " + rule
		}
		s.steering.rules = append(s.steering.rules, rule)
	}
	return nil
}
