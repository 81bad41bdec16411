package device

import (
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"time"

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

// LogFailures returns a function for connect.Config.Failed. It logs failed handshakes that
// nothing else logs, at most one a second: strangers can cause as many as they like. The
// listener counts them all. Any goroutine may call it.
func LogFailures(log *slog.Logger) func(error) {
	var last atomic.Int64
	return func(err error) {
		why := connect.ReasonOf(err)
		switch why {
		case connect.ReasonRefused, connect.ReasonQueuePair: // the server of the flow logs these
			return
		case connect.ReasonClosed, connect.ReasonCancelled: // no fault: a port scan, or the flow stopped
			return
		}
		now, before := time.Now().UnixNano(), last.Load()
		if now-before >= int64(time.Second) && last.CompareAndSwap(before, now) {
			log.Warn("handshake failed", "reason", why, "err", err)
		}
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
