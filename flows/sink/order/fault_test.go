package order

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// newRouter makes the last of three ends of a switch a router, which leads from the first one to the address of the
// exchange as well as the second one does itself.
func newRouter(t *testing.T) (client, exchange, router *testenv.End, address netip.Addr) {
	ends := testenv.NewSwitch(t, 3, testenv.PairOptions{})
	client, exchange, router, address = ends[0], ends[1], ends[2], netip.MustParseAddr("10.99.0.9")
	exchange.Run(t, "ip", "addr", "add", address.String(), "dev", "lo")
	router.Do(t, func() {
		for file, value := range map[string]string{"ip_forward": "1", "conf/all/send_redirects": "0", "conf/" + router.Ifname + "/send_redirects": "0"} {
			testenv.Must(t, os.WriteFile("/proc/sys/net/ipv4/"+file, []byte(value), 0))
		}
	})
	router.Run(t, "ip", "route", "add", address.String(), "via", exchange.IP.String())
	return client, exchange, router, address
}

// TestNextHop: orders go to the next hop that the route has, whether the route changes or its next hop does.
func TestNextHop(t *testing.T) {
	testenv.Root(t)
	client, exchange, router, address := newRouter(t)
	client.Run(t, "ip", "route", "add", address.String(), "via", exchange.IP.String())
	client.Run(t, "ip", "nexthop", "add", "id", "7", "via", exchange.IP.String(), "dev", client.Ifname)
	r := newRig(t, client, exchange, options{address: address})
	s := newStream(r, 100)
	for i, step := range [][]string{
		{"route", "replace", address.String(), "via", router.IP.String()},
		{"route", "replace", address.String(), "via", exchange.IP.String()},
		{"route", "replace", address.String(), "nhid", "7"},
		{"nexthop", "replace", "id", "7", "via", router.IP.String(), "dev", client.Ifname},
		{"nexthop", "replace", "id", "7", "via", exchange.IP.String(), "dev", client.Ifname},
	} {
		routed := i == 0 || i == 3
		client.Run(t, "ip", step...)
		want := exchange.MAC
		if routed {
			want = router.MAC
		}
		r.await("next hop", func() bool {
			p := r.sink.keeper.follows()
			return p != nil && string(p.Destination[:]) == string(want)
		})
		before := router.Stats(t).RxPackets
		segments := r.status().Orders.Segments
		s.delegates("to the next hop")
		segments = r.status().Orders.Segments - segments
		if passed := router.Stats(t).RxPackets - before; routed && passed < segments || !routed && passed > segments/2 {
			t.Errorf("%v: %d packets went by the router, with %d segments", step, passed, segments)
		}
	}
	s.end()
}

// TestAnnouncement: when another host announces the exchange's address, as a standby does that takes over, orders follow.
func TestAnnouncement(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	s := newStream(newRig(t, &p.A, &p.B, options{}), 100)
	s.delegates("at first")
	for i := range byte(3) {
		mac := net.HardwareAddr{2, 0x77, 0, 0, 9, i}
		p.B.Run(t, "ip", "link", "set", p.B.Ifname, "address", mac.String())
		testenv.SendRaw(t, &p.B, [][]byte{announcement(mac, p.B.IP)}, testenv.SendOptions{})
		s.await("new address", func() bool {
			path := s.sink.keeper.follows()
			return path != nil && string(path.Destination[:]) == string(mac)
		})
		s.delegates("to the new address")
	}
	s.end()
}

// announcement is a gratuitous ARP request (RFC 5227, section 2.3).
func announcement(mac net.HardwareAddr, ip netip.Addr) []byte {
	b := append([]byte{255, 255, 255, 255, 255, 255}, mac...)
	b = append(b, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
	b = append(append(b, mac...), ip.AsSlice()...)
	b = append(append(b, 0, 0, 0, 0, 0, 0), ip.AsSlice()...)
	return append(b, make([]byte, 60-len(b))...)
}

// TestAddress: without its own address the connection waits. When the address is there again, orders go on.
func TestAddress(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	s := newStream(newRig(t, &p.A, &p.B, options{}), 100)
	s.delegates("at first")
	for range 2 {
		p.A.Run(t, "ip", "addr", "del", p.A.IP.String()+"/24", "dev", p.A.Ifname)
		s.await("loss of the address", func() bool { return s.sink.keeper.pathError() != "" })
		t.Log(s.sink.keeper.pathError())
		s.send()                                                            // it waits for the kernel
		p.A.Run(t, "ip", "addr", "add", "10.77.0.77/32", "dev", p.A.Ifname) // in its place in the table
		p.A.Run(t, "ip", "addr", "add", p.A.IP.String()+"/24", "dev", p.A.Ifname)
		s.delegates("when the address is back")
		p.A.Run(t, "ip", "addr", "del", "10.77.0.77/32", "dev", p.A.Ifname)
	}
	s.end()
}

// TestOtherWay: while what the exchange sends arrives by another interface, orders go the kernel's way: nothing lowers
// acknowledgements there. What comes with them is not lost.
func TestOtherWay(t *testing.T) {
	testenv.Root(t)
	d := newDetours(t, false)
	r := newRig(t, d.client, d.exchange, options{address: d.address})
	c := r.exchange.accept()
	go func() {
		var b [4096]byte
		for {
			n, err := c.Read(b[:])
			if _, failed := c.Write(b[:n]); err != nil || failed != nil {
				return
			}
		}
	}()
	sent := uint64(0)
	again := func() uint32 { // segments that the exchange has sent again
		info, err := tcpInfo(c)
		testenv.Must(t, err)
		return info.Total_retrans
	}
	echo := func(n int) {
		for range n {
			if why := r.send([]byte("an order with an answer")); why != wire.None {
				t.Fatal(why)
			}
			sent += uint64(len("an order with an answer"))
			r.await("answer", func() bool { return r.sink.count.received.Load() == sent })
		}
	}
	echo(50)
	for range 3 {
		d.exchange.Run(t, "sh", "-c", "ip route add "+d.source+" via "+d.back)
		echo(3)
		before, resent := r.status().Orders, again()
		echo(50)
		if after := r.status().Orders; after.Segments != before.Segments || after.Kernel["other_way"] < before.Kernel["other_way"]+50 {
			t.Errorf("%d orders left in segments: %+v", after.Segments-before.Segments, after)
		}
		if n := again() - resent; n > 1 { // its timer may run out on a busy machine
			t.Errorf("the exchange has sent %d answers again", n)
		}
		d.exchange.Run(t, "sh", "-c", "ip route del "+d.source+" via "+d.back)
		echo(3)
		before = r.status().Orders
		echo(50)
		if after := r.status().Orders; after.Segments < before.Segments+10 {
			t.Errorf("%d orders left in segments: %+v", after.Segments-before.Segments, after)
		}
	}
}

// tcpInfo asks the kernel for the state of a connection.
func tcpInfo(c *net.TCPConn) (info *unix.TCPInfo, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	outer := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	return info, errors.Join(outer, err)
}

// TestKeepAlive: the kernel answers keep-alives of the exchange while the socket is in repair mode, and orders go on. The
// kernel's own find a network that is dead, and end the connection.
func TestKeepAlive(t *testing.T) {
	testenv.Root(t)
	ends := testenv.NewSwitch(t, 2, testenv.PairOptions{})
	r := newRig(t, ends[0], ends[1], options{})
	c := r.exchange.accept()
	testenv.Must(t, c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 100}))
	got := read(c, 100, nil)
	var b [256]byte
	n := uint64(0)
	segments := func() uint64 { return r.status().Orders.Segments }
	for range 2 {
		// An order that goes the kernel's way, as it may on a busy machine, leaves repair mode: the last one must not.
		for first, last := segments(), uint64(0); last < first+20 || last == segments(); n++ {
			last = segments()
			if why := r.send(orderOf(b[:], n, 100)); why != wire.None {
				t.Fatal(why)
			}
		}
		r.await("acknowledgement of the orders", func() bool { return got.orders.Load() == n && r.status().Orders.Unacknowledged == 0 })
		before, err := tcpInfo(c)
		testenv.Must(t, err)
		r.await("answer to a keep-alive", func() bool {
			now, err := tcpInfo(c)
			if err != nil || r.status().Orders.Lost != 0 {
				t.Fatalf("the connection has ended: %v", err)
			}
			return now.Segs_out > before.Segs_out && now.Segs_in > before.Segs_in
		})
		if on, err := unix.GetsockoptInt(r.sink.conn.FD(), unix.IPPROTO_TCP, unix.TCP_REPAIR); on != 1 || err != nil {
			t.Fatalf("the socket is not in repair mode: %d, %v", on, err)
		}
	}
	if s := r.status().Orders; s.Lost != 0 || got.orders.Load() != n {
		t.Fatalf("the exchange has %d of %d orders: %+v", got.orders.Load(), n, s)
	}
	for option, value := range map[int]int{unix.TCP_KEEPIDLE: 1, unix.TCP_KEEPINTVL: 1, unix.TCP_KEEPCNT: 2, unix.TCP_USER_TIMEOUT: 2000} {
		testenv.Must(t, unix.SetsockoptInt(r.sink.conn.FD(), unix.IPPROTO_TCP, option, value))
	}
	testenv.Must(t, c.SetKeepAlive(false))
	ends[1].Lose(t, testenv.ToEnd, 0)
	r.timesOut()
}

// timesOut waits until the kernel has given the connection up.
func (r *rig) timesOut() {
	r.t.Helper()
	r.await("end", func() bool { return r.sink.conn == nil && r.sink.keeper.waitsFor() != nil })
	if why := r.sink.keeper.waitsFor(); !errors.Is(why, unix.ETIMEDOUT) {
		r.t.Error(why)
	}
}

// TestDeadNetwork: a connection over which an order gets no acknowledgement for long ends, and is counted.
func TestDeadNetwork(t *testing.T) {
	testenv.Root(t)
	ends := testenv.NewSwitch(t, 2, testenv.PairOptions{})
	r := newRig(t, ends[0], ends[1], options{})
	s := newStream(r, 100)
	s.delegates("at first")
	if got, err := unix.GetsockoptInt(r.sink.conn.FD(), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT); err != nil || got != 25000 {
		t.Fatalf("the time without an acknowledgement is %d ms, %v", got, err)
	}
	testenv.Must(t, unix.SetsockoptInt(r.sink.conn.FD(), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 1000))
	ends[1].Lose(t, testenv.ToEnd, 0)
	s.send()
	begun := time.Now()
	r.timesOut()
	if took := time.Since(begun); took > testenv.Within(10*time.Second) || r.status().Orders.Lost != 1 {
		t.Errorf("after %v: %+v", took, r.status().Orders)
	}
}

// TestResetInFlight: a reset while orders are under way ends the connection. Each order is counted once: it left, or it
// was refused.
func TestResetInFlight(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	r := newRig(t, &p.A, &p.B, options{})
	for i := range 3 {
		c := r.exchange.accept()
		c.SetLinger(0)
		reset := time.AfterFunc(30*time.Millisecond, func() { c.Close() })
		var b [256]byte
		left := uint64(0)
		before := r.status()
		for {
			why := r.send(orderOf(b[:], left, 100))
			if why == wire.NotDone {
				break
			}
			if why != wire.None {
				t.Fatal(why)
			}
			left++
		}
		reset.Stop()
		r.await("loss", func() bool { return r.status().Orders.Lost == uint64(i+1) }) // the sink counts it in a round behind the refusal
		after := r.status()
		counted := after.Orders.Segments - before.Orders.Segments + total(after.Orders.Kernel) - total(before.Orders.Kernel)
		if counted != left || after.Dropped["not_connected"] != before.Dropped["not_connected"]+1 || after.Orders.Lost != uint64(i+1) {
			t.Errorf("%d orders left, and %d are counted; %+v", left, counted, after.Orders)
		}
		r.await("connection", func() bool { return r.sink.conn != nil })
	}
}

// TestMTU: orders that are longer than a packet may be go the kernel's way, which cuts them: after a change of the
// interface, and when a router says that its next network has shorter packets.
func TestMTU(t *testing.T) {
	testenv.Root(t)
	t.Run("interface", func(t *testing.T) {
		p := testenv.NewPair(t, testenv.PairOptions{})
		s := newStream(newRig(t, &p.A, &p.B, options{}), 1400)
		s.delegates("at first")
		for range 2 {
			p.A.Run(t, "ip", "link", "set", p.A.Ifname, "mtu", "600")
			s.await("new MTU", func() bool { path := s.sink.keeper.follows(); return path != nil && path.MTU == 600 })
			s.cuts(600)
			p.A.Run(t, "ip", "link", "set", p.A.Ifname, "mtu", "1500")
			s.await("old MTU", func() bool { path := s.sink.keeper.follows(); return path != nil && path.MTU == 1500 })
			s.delegates("with the old MTU")
		}
		s.end()
	})
	t.Run("route", func(t *testing.T) {
		p := testenv.NewPair(t, testenv.PairOptions{})
		s := newStream(newRig(t, &p.A, &p.B, options{}), 1400)
		s.delegates("at first")
		p.A.Run(t, "ip", "route", "add", p.B.IP.String(), "dev", p.A.Ifname, "mtu", "lock", "700")
		s.await("new MTU", func() bool { path := s.sink.keeper.follows(); return path != nil && path.MTU == 700 })
		s.cuts(700)
		s.end()
	})
	t.Run("router", func(t *testing.T) {
		client, exchange, router, _ := newRouter(t)
		router.Run(t, "ip", "link", "add", "narrow", "mtu", "800", "type", "veth", "peer", "name", "narrow", "mtu", "800", "netns", exchange.Name)
		router.Run(t, "ip", "addr", "add", "10.79.0.1/24", "dev", "narrow")
		exchange.Run(t, "ip", "addr", "add", "10.79.0.2/24", "dev", "narrow")
		router.Run(t, "ip", "link", "set", "narrow", "up")
		exchange.Run(t, "ip", "link", "set", "narrow", "up")
		client.Run(t, "ip", "route", "add", "10.79.0.2", "via", router.IP.String())
		r := newRig(t, client, exchange, options{address: netip.MustParseAddr("10.79.0.2")}) // which answers by the switch
		s := newStream(r, 1400)
		for range 200 {
			s.send()
			s.arrives()
		}
		if s := r.status().Orders; s.Kernel["too_long"] < 20 || s.Segments < 20 || s.Lost != 0 {
			t.Errorf("%+v", s)
		}
		s.end()
	})
}

// cuts sends orders of up to twice an MTU, and checks that the longer ones are not segments of ours.
func (s *stream) cuts(mtu int) {
	s.t.Helper()
	before := s.status().Orders
	long := uint64(0)
	for range 100 {
		if n := len(orderOf(s.b[:], s.n, s.longest)); n+20+32 > mtu {
			long++
		}
		s.send()
		s.arrives()
	}
	after := s.status().Orders
	if long < 20 || after.Kernel["too_long"] < before.Kernel["too_long"]+long || after.Broken != before.Broken {
		s.t.Errorf("%d orders were too long: %+v, before %+v", long, after, before)
	}
}
