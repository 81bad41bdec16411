package flows

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
)

// numberOf returns the number in a packet that a flow has generated. It parses the packet as a receiver
// would.
func numberOf(t *testing.T, b []byte, length int) uint64 {
	t.Helper()
	p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.Default)
	ip, _ := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
	udp, _ := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
	if p.ErrorLayer() != nil || p.Metadata().Truncated || ip == nil || udp == nil || udp.DstPort != 9 || len(b) != length || len(udp.Payload) != length-42 {
		t.Fatalf("a packet of %d bytes: %v", len(b), p)
	}
	sum := uint32(0)
	for i := 14; i < 34; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	if sum>>16+sum&0xffff != 0xffff {
		t.Fatalf("the header's checksum of %x is wrong", b[14:34])
	}
	return binary.BigEndian.Uint64(udp.Payload)
}

// TestNullToStorage: the file has each generated packet once and in order, and the counters account for all
// of them.
func TestNullToStorage(t *testing.T) {
	for _, c := range []struct {
		layout, wait, from string
		length             int
	}{
		{"packed", "sleep", "generate: 700", 700},
		{"slot", "sleep", "generate: 60, rate: 20000", 60},
		{"slot", "spin", "generate: 3456", 3456},
	} {
		t.Run(fmt.Sprint(c.layout, c.length), func(t *testing.T) {
			l := newLab(t, testenv.PairOptions{NoAddresses: true})
			const count = 5000
			f := l.start(t, fmt.Sprintf(`
region: {size: 96MiB}
workers: [{name: main, wait: %s}]
flows:
  - name: "null"
    from: {%s}
    to: {file: %s/cap, layout: %s, segment: {size: 64MiB}, flush: 100ms, durable: 200ms}
`, c.wait, c.from, l.dir, c.layout), Options{Count: count}).Flows()[0]
			s := await(t, f, "all to be made and written", func(s status.Flow) bool { return s.State != status.Running })
			if s.State != status.Done || s.Packets != count || s.Bytes != uint64(count*c.length) || s.Durable.Packets != count {
				t.Errorf("the status is %+v", s)
			}
			if s.Offered != s.Packets+s.Waiting+lost(s) {
				t.Errorf("%d were offered, %d made, %d wait, %v lost", s.Offered, s.Packets, s.Waiting, s.Dropped)
			}
			if x := s.FrameTimes; x.Submitted == nil || x.Done == nil || x.Submitted.Count != count || x.Done.Count != count || x.Submitted.P50 > x.Done.P50 {
				t.Errorf("the times are %+v and %+v", x.Submitted, x.Done)
			}
			for i, p := range captures.Packets(t, l.files(t)...) {
				if n := numberOf(t, p, c.length); n != uint64(i+1) {
					t.Fatalf("packet %d has number %d", i, n)
				}
			}
			captures.Readable(t, l.files(t)...)
		})
	}
}

// TestNullToPeers: each generated packet reaches the peer that it is for, once, and stages change it.
func TestNullToPeers(t *testing.T) {
	l := newRDMALab(t)
	s := l.newStation(t)
	a, b := s.newCollector(t, "127.0.0.1:0"), s.newCollector(t, "127.0.0.1:0")
	const count = 2000
	f := l.start(t, fmt.Sprintf(`
region: {size: 96MiB}
flows:
  - name: "null"
    from: {generate: 200}
    stages: [{sequence: {offset: 8}}]
    to: {rdma: "roce:%s", peers: [{name: a, address: "%s", flow: sink}, {name: b, address: "%s", flow: sink}], queue: 64, choose: hash}
`, l.B.Ifname, a.address(), b.address()), Options{Count: count}).Flows()[0]
	st := await(t, f, "all to be acknowledged", func(s status.Flow) bool {
		return s.Sends.Peers[0].Acknowledged+s.Sends.Peers[1].Acknowledged == count
	})
	if x := st.FrameTimes; x.Submitted.Count != count || x.Done.Count != count || x.Submitted.P50 > x.Done.P50 {
		t.Errorf("the times are %+v and %+v", x.Submitted, x.Done)
	}
	if a.count() == 0 || b.count() == 0 {
		t.Errorf("the peers have %d and %d", a.count(), b.count())
	}
	seen := map[uint64]bool{}
	for _, p := range append(a.await(t, a.count()), b.await(t, b.count())...) {
		n := numberOf(t, p, 200)
		if seen[n] || n < 1 || n > count || binary.BigEndian.Uint64(p[50:]) != n {
			t.Fatalf("number %d, and the stage's is %d", n, binary.BigEndian.Uint64(p[50:]))
		}
		seen[n] = true
	}
	if len(seen) != count {
		t.Errorf("%d packets of %d", len(seen), count)
	}
}

// TestNetworkToNull: a flow that discards packets counts each one and reuses its frame for later packets.
func TestNetworkToNull(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	f := l.start(t, fmt.Sprintf("{region: {size: 96MiB}, flows: [{name: f, from: {interface: %s, ring: 256}, to: {discard: true}}]}", l.B.Ifname), Options{}).Flows()[0]
	frames := testenv.Stream(&l.A, &l.B, 9, 0, 3000, 500)
	sent := testenv.SendRaw(t, &l.A, frames, testenv.SendOptions{Rate: 20000, Taken: func() uint64 { s := f.Status(); return s.Discarded.Packets + lost(s) }})
	await(t, f, "the packets", func(s status.Flow) bool { return s.Packets+lost(s) >= uint64(sent) }) // the last ones may be on the wire
	testenv.Must(t, f.Stop())
	s := f.Status()
	if s.Discarded.Packets != s.Packets || s.Discarded.Bytes != s.Bytes || s.Packets+lost(s) < uint64(sent) {
		t.Errorf("%d were sent, %d came, %v lost, %+v", sent, s.Packets, s.Dropped, s.Discarded)
	}
	if x := s.FrameTimes; uint64(x.Done.Count) != s.Packets || x.Submitted != nil {
		t.Errorf("the times are %+v of %d packets", x.Done, s.Packets)
	}
	balanced(t, s, s.Offered)
}

// TestRDMAToNull: a flow that discards messages acknowledges them with positions, and does nothing else with
// them.
func TestRDMAToNull(t *testing.T) {
	l := newRDMALab(t)
	f := l.start(t, fmt.Sprintf(`
region: {size: 96MiB}
flows:
  - name: "null"
    from: {rdma: "roce:%s", listen: "%s:7471", window: 16, clients: 2}
    to: {discard: true}
`, l.B.Ifname, l.B.IP), Options{}).Flows()[0]
	c := l.newStation(t).newClient(t, 1, l.address(), "null", 16, 700, 2048)
	c.send(600)
	c.settle(t)
	s := f.Status()
	if s.Discarded.Packets != 600 || s.Packets != 600 || s.Receives.Clients[0].Acknowledged != 600 || s.Latency.Count != 600 || s.FrameTimes.Done.Count != 600 {
		t.Errorf("the status is %+v, %+v", s, s.Discarded)
	}
	if last := c.positions[len(c.positions)-1]; last != 600 {
		t.Errorf("the last position is %d", last)
	}
}
