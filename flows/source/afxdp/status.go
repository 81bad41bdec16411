package afxdp

import (
	"errors"
	"strings"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/xdp"
)

func (s *Source) Announce() []any {
	g := s.net.Granted()
	a := []any{"queues", len(s.queues), "zero_copy", g.ZeroCopy, "multi_buffer", g.MultiBuffer, "attach", g.Mode.String(), "ring", s.ring}
	if why := g.WhyNotZeroCopy(); why != "" {
		a = append(a, "why_no_zero_copy", why)
	}
	if s.steering.rules != nil {
		a = append(a, "steered", s.steering.rules)
	}
	if s.steering.whyNot != "" {
		a = append(a, "why_not_steered", s.steering.whyNot)
	}
	if g.Dispatched {
		a = append(a, "beside", string(s.from.Beside))
	}
	if g.NoArrival != nil {
		a = append(a, "why_no_arrival_times", g.NoArrival.Error())
	}
	if g.TagsStripped {
		a = append(a, "vlan_tags_lost", true)
	}
	if left := s.net.Unbound(); len(left) > 0 {
		a = append(a, "queues_left_to_the_kernel", left)
	}
	if s.mirror != nil {
		return append(a, "mirrors", s.mirrored(), "copies_arrive_on", s.mirror.Interface())
	}
	return append(a, "host_no_longer_sees", Unseen(s.from))
}

// Unseen describes the packets that the host does not receive while the flow runs.
func Unseen(from config.From) string {
	if from.Wanted() == "" {
		return "everything arriving on " + strings.Join(from.All(), ", ")
	}
	return "packets arriving on " + strings.Join(from.All(), ", ") + " that match " + from.Wanted()
}

func (s *Source) Observe(to *status.Flow) error {
	to.From = s.net.Name()
	to.Engine, to.WhyEngine = string(config.EngineXDP), s.why
	g := s.net.Granted()
	to.TagsLost = g.TagsStripped
	to.Steered, to.NotSteered = s.steering.rules, s.steering.whyNot
	to.ZeroCopy, to.WhyNot, to.MultiBuffer, to.Attach = g.ZeroCopy, g.WhyNotZeroCopy(), g.MultiBuffer, g.Mode.String()
	if g.Dispatched {
		to.Beside = string(config.BesideLibxdp)
	}
	observeClock(to, g)
	for i := range s.queues {
		if st, err := s.queues[i].port.Stats(); err == nil {
			to.CardStamped += st.Stamped
		}
	}
	to.Left, to.Ring = s.net.Unbound(), s.ring
	to.Packets, to.Bytes, to.Refused = s.packets.Load(), s.bytes.Load(), s.refused.Load()
	to.KernelBytes["xdp"] = 0
	if !to.ZeroCopy {
		to.KernelBytes["xdp"] = to.Bytes
	}
	return errors.Join(s.observeFilter(to), s.observeLedger(to), s.observeMirror(to))
}

// observeClock adds which clock stamps the packets.
func observeClock(to *status.Flow, g xdp.Granted) {
	to.CardClock = g.CardClock
	if g.CardClock && g.PTPClock >= 0 {
		to.PTPClock = &g.PTPClock
	}
	if g.NoCardClock != nil {
		to.NoCardClock = g.NoCardClock.Error()
	}
	if g.NoArrival != nil {
		to.NoArrival = g.NoArrival.Error()
	}
}

// observeLedger adds the ledger of the interfaces to a status.
func (s *Source) observeLedger(to *status.Flow) error {
	if err := s.net.observeLedger(to); err != nil {
		return err
	}
	to.Dropped["beyond_count"] = s.beyond.Load()
	to.Dropped["not_received"], to.Dropped["write_failed"] = 0, 0 // CountLost sets them
	return nil
}

// CountLost implements pipeline.Source. The packets still in the rings are lost.
func (s *Source) CountLost(to *status.Flow) {
	to.Dropped["not_received"], to.Waiting = to.Waiting, 0
}

// Statistics returns an Interface Statistics Block for each queue.
func (s *Source) Statistics() (all []pcapng.Statistics) {
	now := uint64(time.Now().UnixNano())
	for i := range s.queues {
		q := &s.queues[i]
		st, err := q.port.Stats()
		if err != nil {
			continue
		}
		lost := st.Kernel.Dropped + st.Kernel.RingFull
		all = append(all, pcapng.Statistics{
			Interface: q.batch.ID, Time: now, Start: uint64(s.started.UnixNano()), End: now,
			Received: pcapng.Unknown, Dropped: pcapng.Unknown,
			Accepted: st.Received.Packets + st.Waiting + lost, OSDropped: lost, Delivered: st.Received.Packets,
		})
	}
	return all
}
