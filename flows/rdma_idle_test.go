package flows

import (
	"net"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/authority"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// TestIdleConnections: idle connections from a machine do not keep a client on that machine from a log, with
// and without TLS. They are counted.
func TestIdleConnections(t *testing.T) {
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			const idle = 500
			l := newRDMALab(t)
			tls, who := "", (*connect.Credentials)(nil)
			if secure {
				a := authority.New(t)
				tls, _ = identify(t, a, "server", l.B.IP, a)
				_, who = identify(t, a, "orders", l.A.IP, a)
			}
			d := l.start(t, tls+l.logConfig("acknowledge: received", ""), Options{})
			s := l.newStation(t)
			l.A.Do(t, func() {
				for range idle {
					conn, err := net.Dial("tcp", l.address())
					testenv.Must(t, err)
					t.Cleanup(func() { _ = conn.Close() })
				}
			})
			begun := time.Now()
			good := s.newClientAs(t, who, 1, l.address(), "wal", 100)
			good.send(50)
			good.settle(t)
			if took := time.Since(begun); took > testenv.Within(5*time.Second) {
				t.Errorf("a client was served after %v beside %d idle connections", took, idle)
			} else {
				t.Logf("a client sent 50 messages within %v beside %d idle connections", took.Round(time.Millisecond), idle)
			}
			await(t, d.Flows()[0], "idle connections to be counted", func(s status.Flow) bool {
				h := s.Receives.Handshakes
				return h["address_limit"] >= idle-2*connect.MaxPendingPerAddress && h["address_limit"]+h["timeout"] >= idle
			})
			good.stop()
		})
	}
}
