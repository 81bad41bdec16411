package paths

import (
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/authority"
)

// newTLSRig makes a rig whose connections have TLS. The certificate of the log has the addresses of some
// paths.
func newTLSRig(t *testing.T, proven ...int) *rig {
	t.Helper()
	r := newRig(t).rig
	r.secret, r.proven = authority.New(t), proven
	return r
}

// TestTLSOnEach: a path is used only if the certificate at its other end is valid for its own address. The other path goes
// on alone.
func TestTLSOnEach(t *testing.T) {
	for proven, mode := range []string{"active", "standby"} {
		t.Run(mode, func(t *testing.T) {
			if mode == "active" {
				testenv.Long(t, "the mode standby has the same certificates")
			}
			r := newTLSRig(t, proven)
			there, d := r.log("send"), r.relay(mode)
			refused := 1 - proven
			r.onPath(d, proven)
			s := d.Until(t, "the other path to be refused", func(s *status.Daemon) bool { return paths(s)[refused].Failures > 0 && paths(s)[refused].Error != "" })
			if one := paths(&s)[refused]; one.State != "failed" || one.Connections != 0 || !strings.Contains(one.Error, "certificate is valid for") {
				t.Errorf("the path to an address that the certificate does not have: %+v", one)
			}
			if p := &s.Flows[0].Sends.Peers[0]; p.Certificate != "log" {
				t.Errorf("the peer's certificate is that of %q", p.Certificate)
			}
			const count = 1000
			r.append(r.at(0, relay), 1, count, 2000).Await(t, time.Minute)
			s = there.Until(t, "the messages", func(s *status.Daemon) bool { return s.Flows[0].Packets >= count })
			if p := s.Flows[0].Receives.Paths; p[proven].Messages != count || p[refused].Messages != 0 {
				t.Errorf("the log's paths: %+v", p)
			}
			d.Terminate(t)
			there.Terminate(t)
			r.verify(count)
		})
	}
}
