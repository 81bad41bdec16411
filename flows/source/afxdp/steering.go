package afxdp

import (
	"errors"
	"path/filepath"

	"github.com/unifiedd/unifiedd/bpf/filter"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/xdp"
)

// steering is how cards steer a flow's packets to its queues.
type steering struct {
	rules  []string // for the status
	whyNot string   // the reason, where steering was preferred and the card has none
}

// SteeringDir is the directory of the notes about a daemon's rules in cards.
func SteeringDir(c *config.Config) string { return filepath.Dir(c.Control.Socket) }

// openSteering has the card of an interface steer the flow's packets to its queues, if that is
// configured.
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
