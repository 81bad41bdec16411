package device

import (
	"fmt"
	"net"
	"slices"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// Permit admits peers whose certificate has one of the names. It is nil, which admits all, without
// names.
func Permit(names []string) func(connect.Peer, protocol.Hello) error {
	if names == nil {
		return nil
	}
	return func(p connect.Peer, _ protocol.Hello) error {
		if slices.Contains(names, p.Name) {
			return nil
		}
		return fmt.Errorf("the certificate's name %q is not among those allowed", p.Name)
	}
}

// PlaintextWarning says what connections without TLS mean.
func PlaintextWarning(at net.Addr) string {
	return fmt.Sprintf("any host that reaches %v may connect, and hosts on the path can read and change the traffic (configure tls)", at)
}

// Handshakes counts connections that were not established, by reason.
func Handshakes(l *connect.Listener) map[string]uint64 {
	all := map[string]uint64{}
	for why, n := range l.Failures() {
		all[string(why)] = n
	}
	return all
}
