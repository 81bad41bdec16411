package order

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// detours are two networks between a client and an exchange whose address belongs to neither.
type detours struct {
	t                *testing.T
	client, exchange *testenv.End
	six              bool
	address          netip.Addr // of the exchange
	network          string     // that has the address
	source           string     // address of the client on the first network
	first, second    string     // next hop to the exchange on either network
	back             string     // next hop to the client on the second network
}

// newDetours joins a client and an exchange by a switch, and by a second network. Routes lead over the first one.
func newDetours(t *testing.T, six bool) *detours {
	t.Helper()
	ends := testenv.NewSwitch(t, 2, testenv.PairOptions{IPv6: six})
	d := &detours{t: t, client: ends[0], exchange: ends[1], six: six, network: "10.99.0.0/24", back: "10.78.0.1 dev second"}
	near, far, width, other := "10.78.0.1", "10.78.0.2", "/24", d.exchange.IP
	d.address, d.source = netip.MustParseAddr("10.99.0.9"), d.client.IP.String()
	if six {
		near, far, width, other = "fd78::1", "fd78::2", "/64", d.exchange.IP6
		d.address, d.source, d.network, d.back = netip.MustParseAddr("fd99::9"), d.client.IP6.String(), "fd99::/64", "fd78::1 dev second"
		d.exchange.Run(t, "sh", "-c", "echo 0 > /proc/sys/net/ipv6/conf/lo/disable_ipv6")
	}
	testenv.Wait(t, 10*time.Second, "the addresses", func() bool {
		return !strings.Contains(d.client.Run(t, "ip", "addr")+d.exchange.Run(t, "ip", "addr"), "tentative")
	})
	d.client.Run(t, "ip", "link", "add", "second", "type", "veth", "peer", "name", "second", "netns", d.exchange.Name)
	d.client.Run(t, "ip", "addr", "add", near+width, "dev", "second", "nodad")
	d.exchange.Run(t, "ip", "addr", "add", far+width, "dev", "second", "nodad")
	d.client.Run(t, "ip", "link", "set", "second", "up")
	d.exchange.Run(t, "ip", "link", "set", "second", "up")
	d.exchange.Run(t, "ip", "addr", "add", d.address.String(), "dev", "lo")
	d.first, d.second = other.String()+" dev "+d.client.Ifname, far+" dev second"
	d.route("add", d.network, d.first)
	testenv.Wait(t, 5*time.Second, "an answer over the second network", func() bool { // of neighbour discovery
		return d.client.Command("ping", "-c", "1", "-W", "1", far).Run() == nil
	})
	return d
}

// route changes a route of the client to the exchange.
func (d *detours) route(verb, to, via string) {
	d.t.Helper()
	d.client.Run(d.t, "sh", "-c", "ip route "+verb+" "+to+" via "+via+" src "+d.source)
}

// rule adds or deletes a rule of the client for packets to the exchange's port.
func (d *detours) rule(verb string, port uint16) {
	d.t.Helper()
	family := "-4"
	if d.six {
		family = "-6"
	}
	d.client.Run(d.t, "ip", family, "rule", verb, "ipproto", "tcp", "dport", strconv.Itoa(int(port)), "table", "99")
}

// TestRoute: while the kernel's route to the exchange leads out of another interface, orders go the kernel's way, and are
// counted with that reason. When it leads out of the flow's again, so do orders. All arrive, and none has to be sent again
// because it left where the route does not lead any more.
func TestRoute(t *testing.T) {
	testenv.Root(t)
	for _, c := range []struct {
		name string
		dead bool // the first network loses everything
		four bool // only IPv4: the kernel takes an address of IPv6 away with its interface, and the connection with it
		here func(d *detours, port uint16)
		back func(d *detours, port uint16)
	}{
		{
			name: "the route changes",
			here: func(d *detours, _ uint16) { d.route("replace", d.network, d.second) },
			back: func(d *detours, _ uint16) { d.route("replace", d.network, d.first) },
		}, {
			name: "another one is closer, and the first network is dead", dead: true,
			here: func(d *detours, _ uint16) { d.route("add", d.address.String(), d.second) },
			back: func(d *detours, _ uint16) { d.route("del", d.address.String(), d.second) },
		}, {
			name: "a rule for the port", dead: true,
			here: func(d *detours, port uint16) {
				d.route("add", "table 99 "+d.network, d.second)
				d.rule("add", port)
			},
			back: func(d *detours, port uint16) {
				d.rule("del", port)
				d.route("del", "table 99 "+d.network, d.second)
			},
		}, {
			name: "the interface is down", four: true,
			here: func(d *detours, _ uint16) {
				d.client.SetDown(d.t)
				d.route("add", d.address.String(), d.second)
				d.exchange.Run(d.t, "sh", "-c", "ip route add "+d.source+" via "+d.back)
			},
			back: func(d *detours, _ uint16) {
				d.client.SetUp(d.t)
				d.exchange.Run(d.t, "sh", "-c", "ip route del "+d.source+" via "+d.back)
				d.route("replace", d.network, d.first)
				d.route("del", d.address.String(), d.second)
			},
		},
	} {
		for _, family := range []string{"IPv4", "IPv6"} {
			if c.four && family == "IPv6" {
				continue
			}
			t.Run(c.name+", "+family, func(t *testing.T) {
				d := newDetours(t, family == "IPv6")
				r := newRig(t, d.client, d.exchange, options{address: d.address})
				s := newStream(r, 100)
				s.delegates("at first")
				for range 3 {
					var mend func()
					if c.dead {
						mend = d.exchange.Lose(t, testenv.ToEnd, 0)
					}
					c.here(d, r.exchange.address.Port())
					r.await("other route", func() bool { return r.sink.keeper.pathError() != "" })
					before := r.status().Orders
					for range 100 {
						s.send()
					}
					if after := r.status().Orders; after.Segments != before.Segments || after.Kernel["no_path"] < before.Kernel["no_path"]+100 {
						t.Errorf("%d orders left in segments: %+v", after.Segments-before.Segments, after)
					}
					s.arrives()
					t.Log(r.sink.keeper.pathError())
					if c.dead {
						mend()
					}
					c.back(d, r.exchange.address.Port())
					s.delegates("when the route is back")
				}
				s.end()
				if o := r.status().Orders; o.Lost != 0 {
					t.Errorf("the connection has ended: %+v", o)
				}
			})
		}
	}
}

// stream is orders that a rig sends over its first connection.
type stream struct {
	*rig
	conn    *net.TCPConn // the exchange's
	got     *reader
	longest int
	n       uint64
	b       [2048]byte
}

func newStream(r *rig, longest int) *stream {
	c := r.exchange.accept()
	return &stream{rig: r, conn: c, got: read(c, longest, nil), longest: longest}
}

// send sends the next order.
func (s *stream) send() {
	s.t.Helper()
	if why := s.rig.send(orderOf(s.b[:], s.n, s.longest)); why != 0 {
		s.t.Fatalf("order %d: %v", s.n, why)
	}
	s.n++
}

// arrives waits until the exchange has all orders.
func (s *stream) arrives() {
	s.t.Helper()
	s.await("whole stream", func() bool { return s.got.orders.Load() == s.n || len(s.got.err) > 0 })
}

// delegates sends orders until some have left in segments, one after the other.
func (s *stream) delegates(what string) {
	s.t.Helper()
	before := s.status().Orders.Segments
	s.await("segment "+what, func() bool {
		s.send()
		s.arrives()
		return s.sink.keeper.pathError() == "" && s.status().Orders.Segments >= before+20
	})
}

// end ends the flow, and checks what the exchange has got.
func (s *stream) end() {
	s.t.Helper()
	s.arrives()
	s.close()
	if err := <-s.got.err; err != nil || s.got.orders.Load() != s.n {
		s.t.Errorf("%d of %d orders, then %v", s.got.orders.Load(), s.n, err)
	}
}
