package peers

import (
	"context"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/fanout"
)

// NextOf returns a function that asks the only peer how far a session is, if that peer is a group: see NextOf of
// stream.Sender. Else it returns nil.
func (s *Sink) NextOf() func(ctx context.Context, session uint64) (next uint64, err error) {
	return s.nextOf
}

// asks prepares NextOf.
func (s *Sink) asks(senders []fanout.Peer, peers []config.Peer) {
	if len(peers) == 1 && len(peers[0].Others) > 0 {
		s.nextOf = senders[0].Sender.NextOf
	}
}
