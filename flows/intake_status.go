package flows

import (
	"errors"
	"strings"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/xdp"
)

// announce is what the log says of the interface.
func (n *intake) announce(from config.From) []any {
	g := n.net.Granted()
	a := []any{"queues", len(n.sources), "zero_copy", g.ZeroCopy, "multi_buffer", g.MultiBuffer, "attach", g.Mode.String(), "ring", n.ring}
	if why := g.WhyNotZeroCopy(); why != "" {
		a = append(a, "why_no_zero_copy", why)
	}
	if n.steering.rules != nil {
		a = append(a, "steered", n.steering.rules)
	}
	if n.steering.whyNot != "" {
		a = append(a, "why_not_steered", n.steering.whyNot)
	}
	if g.Dispatched {
		a = append(a, "beside", string(from.Beside))
	}
	if g.NoArrival != nil {
		a = append(a, "why_no_arrival_times", g.NoArrival.Error())
	}
	if g.TagsStripped {
		a = append(a, "vlan_tags_lost", true)
	}
	if left := n.net.Unbound(); len(left) > 0 {
		a = append(a, "queues_left_to_the_kernel", left)
	}
	if n.mirror != nil {
		return append(a, "mirrors", n.mirrors(), "copies_arrive_on", n.mirror.Interface())
	}
	return append(a, "host_no_longer_sees", unseen(from))
}

// unseen says what the host loses sight of.
func unseen(from config.From) string {
	if from.Wanted() == "" {
		return "everything arriving on " + strings.Join(from.All(), ", ")
	}
	return "packets arriving on " + strings.Join(from.All(), ", ") + " that match " + from.Wanted()
}

// observe adds what the interface knows of the flow.
func (n *intake) observe(s *FlowStatus) error {
	s.From = n.net.Name()
	g := n.net.Granted()
	s.TagsLost = g.TagsStripped
	s.Steered, s.NotSteered = n.steering.rules, n.steering.whyNot
	s.ZeroCopy, s.WhyNot, s.MultiBuffer, s.Attach = g.ZeroCopy, g.WhyNotZeroCopy(), g.MultiBuffer, g.Mode.String()
	if g.Dispatched {
		s.Beside = string(config.BesideLibxdp)
	}
	fillClock(s, g)
	for i := range n.sources {
		if st, err := n.sources[i].port.Stats(); err == nil {
			s.CardStamped += st.Stamped
		}
	}
	s.Left, s.Ring = n.net.Unbound(), n.ring
	s.Packets, s.Bytes, s.Refused = n.packets.Load(), n.bytes.Load(), n.refused.Load()
	s.KernelBytes["xdp"] = 0
	if !s.ZeroCopy {
		s.KernelBytes["xdp"] = s.Bytes
	}
	return errors.Join(n.fillSelected(s), n.fillLedger(s), n.observeMirror(s))
}

// fillClock says whose times the packets have.
func fillClock(s *FlowStatus, g xdp.Granted) {
	s.CardClock = g.CardClock
	if g.CardClock && g.PTPClock >= 0 {
		s.PTPClock = &g.PTPClock
	}
	if g.NoCardClock != nil {
		s.NoCardClock = g.NoCardClock.Error()
	}
	if g.NoArrival != nil {
		s.NoArrival = g.NoArrival.Error()
	}
}

// fillLedger says what became of every packet that reached the interface.
func (n *intake) fillLedger(s *FlowStatus) error {
	if err := n.net.fillLedger(s); err != nil {
		return err
	}
	s.Dropped["beyond_count"] = n.unwanted.Load()
	s.Dropped["not_received"], s.Dropped["write_failed"] = 0, 0 // known at the end
	return nil
}
