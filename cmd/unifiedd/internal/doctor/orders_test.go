package doctor

import (
	"testing"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestOrders: the doctor finds an interface that does not lead to the exchange, a queue that is not there, and one that
// another flow has. It warns of a flow beside it that has only some of the queues.
func TestOrders(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{Queues: 2})
	p.A.Run(t, "ip", "link", "add", "other0", "type", "veth", "peer", "name", "other1")
	p.A.Run(t, "ip", "link", "set", "other0", "up")
	near := p.B.IP.String() + ":4001"
	for _, c := range []struct {
		what, iface, connect string
		queue                int
		takes                []int // queues that another flow receives from; nil: there is none
		route, transmit      State
		says                 string
	}{
		{"all is well", p.A.Ifname, near, 1, []int{0}, OK, OK, "no other flow's"},
		{"another interface", "other0", near, 0, nil, Fail, OK, "leads out of " + p.A.Ifname},
		{"no such name", p.A.Ifname, "nobody.invalid:4001", 0, nil, Fail, OK, "/etc/hosts"},
		{"no route", p.A.Ifname, "192.0.2.1:4001", 0, nil, Fail, OK, "ip route add"},
		{"no interface", "absent0", near, 0, nil, Fail, Fail, "correct to.order.interface"},
		{"no such queue", p.A.Ifname, near, 2, nil, OK, Fail, "ethtool -L"},
		{"a queue of another flow", p.A.Ifname, near, 1, []int{0, 1}, OK, Fail, "flow md has queue 1"},
	} {
		o := config.NewFlowOf(config.KindAttachOrder, "orders")
		o.To.Order = &config.Order{Connect: c.connect, Interface: c.iface, Queue: c.queue}
		conf := config.Default()
		conf.Flows = []config.Flow{o}
		if c.takes != nil {
			f := config.NewFlow("md")
			f.From.Interface, f.From.Queues, f.To.File = c.iface, c.takes, "/captures/md"
			conf.Flows = append(conf.Flows, f)
		}
		r := &Report{}
		p.A.Do(t, func() { r.addOrders(needs{Config: conf, given: true}) })
		more := 0
		if len(c.takes) == 1 { // of two queues
			more = 1
		}
		if len(r.Sections) != 1 || len(r.Sections[0].Checks) != 2+more {
			t.Fatalf("%s: %+v", c.what, r.Sections)
		}
		for _, one := range r.Sections[0].Checks[2:] {
			expect(t, c.what, one, Warn, "stay with the kernel")
		}
		for i, want := range []State{c.route, c.transmit} {
			says := ""
			if want == Fail || i == 1 && c.route == OK {
				says = c.says
			}
			expect(t, c.what, r.Sections[0].Checks[i], want, says)
		}
	}
}
