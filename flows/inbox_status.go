package flows

import (
	"fmt"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// observe adds what is known of the clients.
func (b *inbox) observe(s *FlowStatus) {
	s.Packets, s.Bytes = b.packets.Load(), b.bytes.Load()
	if b.device.soft {
		s.CopiedBytes["placed"] = s.Bytes
	}
	st := b.receiver.Stats()
	r := &ReceivesStatus{
		Device: b.device.name, Listen: b.listener.Addr().String(), TLS: b.secure, Connected: st.Connected, Broken: st.Failed,
		Replays: st.Replays, Method: string(b.method), Posted: st.Posted, Granted: st.Granted, Grants: st.Grants, Refused: status.RefusedBy(st.Refused), Handshakes: handshakes(b.listener),
	}
	for i := range st.Sessions {
		r.Clients = append(r.Clients, clientStatus(&st.Sessions[i]))
	}
	s.Receives = r
}

// handshakes are the connections that did not come about, by reason.
func handshakes(l *connect.Listener) map[string]uint64 {
	all := map[string]uint64{}
	for why, n := range l.Failures() {
		all[string(why)] = n
	}
	return all
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
