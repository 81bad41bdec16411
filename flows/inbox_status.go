package flows

import (
	"fmt"

	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/stream"
)

// observe adds what is known of the clients.
func (b *inbox) observe(s *FlowStatus) {
	s.Packets, s.Bytes = b.packets.Load(), b.bytes.Load()
	if b.device.Software {
		s.CopiedBytes["placed"] = s.Bytes
	}
	st := b.receiver.Stats()
	r := &ReceivesStatus{
		Device: b.device.Name, Listen: b.listener.Addr().String(), TLS: b.secure, Connected: st.Connected, Broken: st.Failed,
		Replays: st.Replays, Method: string(b.method), Posted: st.Posted, Granted: st.Granted, Grants: st.Grants, Refused: status.RefusedBy(st.Refused), Handshakes: device.Handshakes(b.listener),
	}
	for i := range st.Sessions {
		r.Clients = append(r.Clients, clientStatus(&st.Sessions[i]))
	}
	s.Receives = r
}

func clientStatus(s *stream.SessionStats) ClientStatus {
	c := ClientStatus{
		Name: s.Name, Session: fmt.Sprintf("%016x", s.Session), State: s.State, Messages: s.Messages, Bytes: s.Bytes,
		Sequence: s.Sequence, Acknowledged: s.Acknowledged, Limit: s.Limit, Granted: s.Granted, Seen: s.Seen,
	}
	if s.Cause != nil {
		c.Error = s.Cause.Error()
	}
	return c
}
