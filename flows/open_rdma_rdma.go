package flows

import (
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/numa"
)

// openRDMARDMA opens both ends of a relay. Nothing moves until a worker polls it and it
// has begun.
func openRDMARDMA(o *opening) (*rdmaRDMA, error) {
	r := &rdmaRDMA{book: o.book}
	r.region = o.region
	if err := r.openStages(o.flow.Stages); err != nil {
		return nil, err
	}
	durability, err := protocol.ParseDurability(string(o.flow.To.Durability))
	if err != nil {
		return nil, err
	}
	queues := len(o.flow.To.Peers) * o.flow.To.Queue
	c := inboxConfig{away: 2, wish: max(2*burst, queues), durability: durability}
	if hasSum(o.flow.Stages) {
		c.joins = func(participant int) { r.sums.joins(participant) }
	} else {
		c.resume, c.origins = true, true
	}
	if err := r.openInbox(o, c); err != nil {
		return nil, err
	}
	if r.sums, err = openReduction(o.flow.Stages, o.region, o.flow.From.Clients, o.flow.From.Window); err != nil {
		return nil, err
	}
	if err := r.openOutbox(o, uint32(o.flow.From.Message), 1, r.queue(&o.flow.To)); err != nil {
		return nil, err
	}
	r.supply()
	r.ends.from, r.ends.to = numa.Unknown, numa.Unknown
	r.Watermarks = o.flow.Watermarks
	o.complete(&r.common)
	return r, nil
}

// queue is how many messages may be under way to each peer. Where a peer can be done without, its queue has at most half of the frames that
// messages may take, so that one that is away does not hold all of them and stall the others.
func (r *rdmaRDMA) queue(to *config.To) int {
	if to.Choose != config.ChooseAll || to.Acknowledge == config.AcknowledgeAll || len(to.Peers) == 1 {
		return to.Queue
	}
	return min(to.Queue, max(1, (r.total-r.window)/2))
}
