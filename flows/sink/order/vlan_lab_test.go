package order

import (
	"net/netip"
	"os/exec"
	"strconv"
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestVLAN: orders to an exchange behind a VLAN on the interface have its tag.
func TestVLAN(t *testing.T) {
	labenv.Guest(t)
	if out, err := exec.Command("modprobe", "8021q").CombinedOutput(); err != nil {
		t.Fatalf("load the module 8021q: %v\n%s", err, out)
	}
	p := testenv.NewPair(t, testenv.PairOptions{})
	for i, e := range []*testenv.End{&p.A, &p.B} {
		e.Run(t, "ip", "link", "add", "link", e.Ifname, "name", "vlan100", "type", "vlan", "id", "100")
		e.Run(t, "ip", "addr", "add", "10.78.0."+strconv.Itoa(i+1)+"/24", "dev", "vlan100")
		e.Run(t, "ip", "link", "set", "vlan100", "up")
	}
	r := newRig(t, &p.A, &p.B, options{address: netip.MustParseAddr("10.78.0.2")})
	got := read(r.exchange.accept(), 100, nil)
	var b [256]byte
	for n := range uint64(500) {
		r.send(orderOf(b[:], n, 100))
	}
	r.await("stream", func() bool { return got.orders.Load() == 500 || len(got.err) > 0 })
	s := r.status().Orders
	if labenv.Kernel(t) == labenv.Linux61 { // it has no program at tc's ingress by a link, so it sends all orders
		if s.Segments != 0 || s.Kernel["old_kernel"] != 500 {
			t.Errorf("%+v", s)
		}
		return
	}
	if s.Segments < 100 || s.Retransmitted > 10 {
		t.Errorf("%+v", s)
	}
}
