package flows

import (
	"errors"
	"path/filepath"

	"github.com/unifiedd/unifiedd/bpf/filter"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/xdp"
)

// steering is what cards do for a flow.
type steering struct {
	rules  []string // for people
	whyNot string   // where it was preferred
}

// SteeringDir is where it is noted which rules of cards are a daemon's.
func SteeringDir(c *config.Config) string { return filepath.Dir(c.Control.Socket) }

// openSteering has the card of an interface put what the flow takes into its queues, if that is wanted.
func (n *intake) openSteering(o *opening, name string) error {
	from := o.flow.From
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
	s, err := xdp.Steer(name, tuples, queues, o.shared.notes)
	if errors.Is(err, xdp.ErrNoSteering) && from.Steer == config.SteerPrefer {
		n.steering.whyNot = err.Error()
		return nil
	}
	if err != nil {
		return err
	}
	o.undo.add(s.Close)
	for _, rule := range s.Rules() {
		if from.Interfaces != nil {
			rule = name + ": " + rule
		}
		n.steering.rules = append(n.steering.rules, rule)
	}
	return nil
}
