package message

import (
	"fmt"

	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/stream"
)

func (s *Source) Announce() []any {
	a := []any{"device", s.device.Name, "listens", s.listeners[0].Addr().String(), "window", s.window, "method", string(s.method)}
	if !s.secure {
		a = append(a, "plain", device.PlaintextWarning(s.listeners[0].Addr()))
	}
	if s.log != nil {
		a = append(a, "acknowledge", string(s.log.Acknowledge), "position", s.acks.before+1)
	}
	return a
}

func (s *Source) Observe(to *status.Flow) error {
	if s.log != nil && !s.member {
		before := s.acks.before
		to.Log = &status.Log{
			Acknowledge: string(s.log.Acknowledge), First: before + 1, Written: before + to.Written.Packets, Durable: before + to.Durable.Packets,
			Acknowledged: before + s.acks.acknowledgedShown.Load(), Last: before + s.acks.receivedShown.Load(), Lost: s.log.End.Lost,
		}
	}
	if s.dedup != nil {
		to.Dropped["duplicate"] = s.dedup.duplicates.Load()
		to.Dropped["refused"] = s.dedup.refused.Load()
	}
	if s.combiner != nil {
		s.combiner.Observe(to)
	}
	to.Latency = s.acks.times.Summary()
	to.Packets, to.Bytes = s.Traffic()
	if s.device.Software {
		to.CopiedBytes["placed"] = to.Bytes
	}
	st := s.receiver.Stats()
	to.Receives = &status.Receives{
		Device: s.device.Name, Listen: s.listeners[0].Addr().String(), TLS: s.secure, Connected: st.Connected, Broken: st.Failed,
		Replays: st.Replays, Method: string(s.method), Posted: st.Posted, Granted: st.Granted, Grants: st.Grants, Refused: status.RefusedBy(st.Refused), Handshakes: s.handshakes(), Paths: s.paths(),
	}
	for i := range st.Sessions {
		to.Receives.Clients = append(to.Receives.Clients, clientStatus(&st.Sessions[i]))
	}
	return nil
}

func clientStatus(s *stream.SessionStats) status.Client {
	c := status.Client{
		Name: s.Name, Session: fmt.Sprintf("%016x", s.Session), State: s.State, Messages: s.Messages, Bytes: s.Bytes,
		Sequence: s.Sequence, Acknowledged: s.Acknowledged, Limit: s.Limit, Granted: s.Granted, Seen: s.Seen,
	}
	if s.Cause != nil {
		c.Error = s.Cause.Error()
	}
	return c
}

// CountLost implements pipeline.Source. A relay's clients still have the messages that are not
// acknowledged.
func (s *Source) CountLost(to *status.Flow) {
	if s.relay {
		to.Dropped["not_acknowledged"] = s.acks.receivedShown.Load() - s.acks.acknowledgedShown.Load()
	}
}
