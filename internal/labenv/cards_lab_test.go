package labenv

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestCardsComeBack: a test gives its cards back at once, also if the kernel keeps their namespace: there is a TCP
// connection that was closed, and whose peer is gone.
func TestCardsComeBack(t *testing.T) {
	Guest(t)
	t.Run("test", func(t *testing.T) {
		testenv.Leaks(t)
		p := Igb(t)
		const at, from = "10.77.2.1", "10.77.2.2"
		for _, e := range []struct {
			end, other *testenv.End
			own, peer  string
		}{{&p.A, &p.B, at, from}, {&p.B, &p.A, from, at}} {
			e.end.Run(t, "ip", "address", "add", e.own+"/24", "dev", e.end.Ifname)
			e.end.Run(t, "ip", "neigh", "replace", e.peer, "lladdr", e.other.MAC.String(), "dev", e.end.Ifname)
		}
		var l net.Listener
		var there net.Conn
		var err error
		p.A.Do(t, func() { l, err = net.Listen("tcp", at+":7471") })
		testenv.Must(t, err)
		defer l.Close()
		p.B.Do(t, func() { there, err = net.DialTimeout("tcp", l.Addr().String(), 10*time.Second) })
		testenv.Must(t, err)
		defer there.Close()
		here, err := l.Accept()
		testenv.Must(t, err)
		p.B.SetDown(t)
		testenv.Must(t, here.Close())
		if now := p.A.Run(t, "ss", "-tan"); !strings.Contains(now, "FIN-WAIT-1") {
			t.Fatalf("no connection waits for its peer:\n%s", now)
		}
	})
	for _, card := range []string{"igb0", "igb1"} {
		if _, err := netlink.LinkByName(card); err != nil {
			t.Errorf("%s: %v", card, err)
		}
	}
}
