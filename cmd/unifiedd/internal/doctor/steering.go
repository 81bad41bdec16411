package doctor

import (
	"errors"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/xdp"
)

// steering reports whether the card can put packets into queues by rules. Only the start of a flow
// shows which rules a driver accepts.
func (c card) steering() Check {
	const name = "steering"
	s, err := xdp.SteersPackets(c.Name)
	wanted := c.hasFlow && c.flow.From.Steer != ""
	switch {
	case err != nil && !errors.Is(err, xdp.ErrNoSteering):
		return unknown(name, "%v", err)
	case err == nil && s.On:
		return ok(name, "the card takes rules: it has %d, of %d", s.Rules, s.Room)
	case err == nil && !wanted:
		return ok(name, "the card takes rules once they are switched on (ethtool -K %s ntuple on)", c.Name)
	case err == nil:
		return fail(name, "rules are switched off, and flow %s asks for them", c.flow.Name).as(c.missed()).with("ethtool -K %s ntuple on", c.Name)
	case !wanted:
		return ok(name, "none; no flow asks for it")
	}
	return fail(name, "%v, and flow %s asks for it", err, c.flow.Name).as(c.missed()).with("remove steer, or use another card")
}

// missed returns the state for a card that does not steer.
func (c card) missed() State {
	if c.flow.From.Steer == config.SteerRequire {
		return Fail
	}
	return Warn
}
