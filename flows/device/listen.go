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

// Permit returns a function that admits peers whose certificate has one of the names. Without names
// it returns nil, which admits all peers.
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

// LogFailures returns a function for connect.Config.Failed. It logs failed handshakes, except
// refusals and queue pair failures, which the flow's server logs, and except closed and cancelled
// ones, which are not faults. It logs at most one per second, because any host can cause any number
// of them. The listener counts all. Any goroutine may call the function.
func LogFailures(log *slog.Logger) func(error) {
	begun := time.Now()
	return logFailures(log, func() time.Duration { return time.Since(begun) })
}

// logFailures is LogFailures with a clock that does not go back.
func logFailures(log *slog.Logger, clock func() time.Duration) func(error) {
	var last atomic.Int64
	last.Store(-int64(time.Second))
	return func(err error) {
		why := connect.ReasonOf(err)
		switch why {
		case connect.ReasonRefused, connect.ReasonQueuePair, connect.ReasonClosed, connect.ReasonCancelled:
			return
		}
		now, before := int64(clock()), last.Load()
		if now-before >= int64(time.Second) && last.CompareAndSwap(before, now) {
			log.Warn("handshake failed", "reason", why, "err", err)
		}
	}
}

// PlaintextWarning describes the risk of connections without TLS.
func PlaintextWarning(at net.Addr) string {
	return fmt.Sprintf("any host that reaches %v may connect, and hosts on the path can read and change the traffic (configure tls)", at)
}

// Handshakes returns the number of failed handshakes by reason, over all listeners.
func Handshakes(listeners ...*connect.Listener) map[string]uint64 {
	all := map[connect.Reason]uint64{}
	for _, l := range listeners {
		for why, n := range l.Failures() {
			all[why] += n
		}
	}
	return HandshakeCounts(all)
}

// HandshakeCounts converts counts of failed handshakes.
func HandshakeCounts(failures map[connect.Reason]uint64) map[string]uint64 {
	all := map[string]uint64{}
	for why, n := range failures {
		all[string(why)] = n
	}
	return all
}
