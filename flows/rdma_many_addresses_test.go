package flows

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
)

// TestManyAddresses: interfaces have 300 further addresses in another network. A log that listens at the last one has a client
// that comes from that network, and each side's queue pair has the address of its end of the TCP connection.
func TestManyAddresses(t *testing.T) {
	l := newRDMALab(t)
	last := netip.Addr{}
	for side, ns := range []*testenv.Namespace{l.A.Namespace, l.B.Namespace} {
		var all strings.Builder
		for n := range 300 {
			last = netip.AddrFrom4([4]byte{10, 78, byte(2*side + n/200), byte(1 + n%200)})
			fmt.Fprintf(&all, "address add %s/16 dev %s\n", last, []string{l.A.Ifname, l.B.Ifname}[side])
		}
		ns.Run(t, "sh", "-c", "ip -batch - <<'END'\n"+all.String()+"END")
	}
	d := l.start(t, strings.Replace(l.logConfig("acknowledge: durable", ""), fmt.Sprintf(`"%s:7471"`, l.B.IP), fmt.Sprintf(`"%s:7471"`, last), 1), Options{})
	s := l.newStation(t)
	c := s.newClient(t, 1, last.String()+":7471", "wal", 100)
	c.send(20)
	c.settle(t)
	await(t, d.Flows()[0], "the records", func(s status.Flow) bool { return s.Durable.Packets == 20 && len(s.Receives.Clients) == 1 })

	own := netip.MustParseAddr("10.78.1.100") // the last one of A
	settings, err := s.endpoint.Settings(own, last)
	testenv.Must(t, err)
	if settings.GID.GID != rdma.GIDOf(own) || settings.GID.Index < 256 {
		t.Errorf("a connection at %v has the address %v of place %d", own, settings.GID.GID, settings.GID.Index)
	}
	l.A.Do(t, func() { settings, err = s.endpoint.SettingsTo(t.Context(), last.String()+":7471") })
	testenv.Must(t, err)
	if first := rdma.GIDOf(netip.MustParseAddr("10.78.0.1")); settings.GID.GID != first {
		t.Errorf("a connection to %v has the address %v, want %v", last, settings.GID.GID, first)
	}
}
