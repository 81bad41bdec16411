package flows

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/flows/blocks"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// side makes a veth pair inside end B's namespace: packets sent on one of its ends arrive at the other. The
// lab's own pair carries RDMA.
func (l *lab) side(t *testing.T) (from, to testenv.End) {
	t.Helper()
	l.B.Run(t, "ip", "link", "add", "side0", "type", "veth", "peer", "name", "side1")
	for i, e := range []*testenv.End{&from, &to} {
		*e = testenv.End{Namespace: l.B.Namespace, Ifname: fmt.Sprint("side", i), IP: l.A.IP, MAC: make(net.HardwareAddr, 6)}
		l.B.Run(t, "sysctl", "-qw", fmt.Sprintf("net.ipv6.conf.%s.disable_ipv6=1", e.Ifname))
		l.B.Run(t, "ip", "link", "set", e.Ifname, "up")
		l.B.Do(t, func() {
			link, err := netlink.LinkByName(e.Ifname)
			testenv.Must(t, err)
			e.Index, e.MAC = link.Attrs().Index, link.Attrs().HardwareAddr
		})
	}
	return from, to
}

// checksummed checks the UDP checksum of a packet over IPv4, if it has one, and clears it.
func checksummed(t *testing.T, p []byte) {
	t.Helper()
	sum := uint32(17) + uint32(binary.BigEndian.Uint16(p[38:])) // the pseudo header's protocol and length
	for at := 26; at < len(p); at += 2 {                        // from its addresses to the end; the length is even
		sum += uint32(binary.BigEndian.Uint16(p[at:]))
	}
	if sum = sum>>16 + sum&0xffff; (sum>>16+sum)&0xffff != 0xffff && binary.BigEndian.Uint16(p[40:]) != 0 {
		t.Fatalf("the checksum of %x is wrong", p)
	}
	copy(p[40:], []byte{0, 0})
}

// TestFeed: packets that match the filter reach every peer, each as a message.
func TestFeed(t *testing.T) {
	l := newRDMALab(t)
	from, to := l.side(t)
	s := l.newStation(t)
	a, b := s.newCollectorOf(t, "127.0.0.1:0", true), s.newCollector(t, "127.0.0.1:0")
	f := l.start(t, fmt.Sprintf(`
region: {size: 96MiB}
flows:
  - name: feed
    from: {interface: %s, ring: 2048, filter: udp dst port 9}
    stages: [{set: {port_destination: 99}}, {sequence: {offset: 500}}]
    to: {rdma: "roce:%s", peers: [{name: a, address: "%s", flow: sink}, {name: b, address: "%s", policy: drop_newest}], queue: 256}
`, to.Ifname, l.B.Ifname, a.address(), b.address()), Options{}).Flows()[0]
	frames := testenv.Stream(&from, &to, 9, 0, 2000, 600)
	await(t, f, "the peers", func(s status.Flow) bool { return s.Sends.Peers[0].Credit > 0 && s.Sends.Peers[1].Credit > 0 })
	testenv.SendRaw(t, &from, frames, testenv.SendOptions{Taken: func() uint64 {
		st := f.Status()
		return st.Sends.Peers[0].Acknowledged + lost(st)
	}})
	for i, f := range frames { // as the stages change them; packets come in the order of their numbers
		binary.BigEndian.PutUint16(f[36:], 99)
		binary.BigEndian.PutUint64(f[42+500:], uint64(i+1))
		copy(f[40:], []byte{0, 0})
	}
	got := a.await(t, len(frames))
	for _, p := range got {
		checksummed(t, p)
	}
	samePackets(t, "peer a", got, frames)
	st := await(t, f, "acknowledgements", func(s status.Flow) bool {
		return s.Sends.Peers[0].Acknowledged == 2000 && s.Sends.Peers[1].Waiting+s.Sends.Peers[1].InFlight == 0
	})
	if a, b := st.Sends.Peers[0].Method, st.Sends.Peers[1].Method; a != "write" || b != "send" {
		t.Errorf("messages go by %q and %q", a, b)
	}
	for _, p := range st.Sends.Peers {
		dropped := uint64(0)
		for _, n := range p.Dropped {
			dropped += n
		}
		if p.Offered != 2000 || p.Acknowledged+dropped != 2000 || p.Latency == nil {
			t.Errorf("peer %+v", p)
		}
	}
	testenv.Must(t, f.Stop())
	if got := b.count(); uint64(got) != st.Sends.Peers[1].Acknowledged {
		t.Errorf("peer b has %d messages and acknowledged %d", got, st.Sends.Peers[1].Acknowledged)
	}
}

// TestRelay: a client's message reaches all peers, and is acknowledged once enough peers have it.
func TestRelay(t *testing.T) {
	l := newRDMALab(t)
	s := l.newStation(t)
	a, b := s.newCollector(t, "127.0.0.1:0"), s.newCollector(t, "127.0.0.1:0")
	f := l.start(t, fmt.Sprintf(`
region: {size: 96MiB}
flows:
  - name: relay
    from: {rdma: "roce:%s", listen: "%s:7471", window: 16, clients: 4}
    to: {rdma: "roce:%[1]s", peers: [{name: a, address: "%[3]s", flow: sink}, {name: b, address: "%[4]s", flow: sink}], queue: 64, acknowledge: all}
`, l.B.Ifname, l.B.IP, a.address(), b.address()), Options{}).Flows()[0]
	c := s.newClient(t, 1, l.address(), "relay", 16, 1000, 2048, 0)
	c.send(500)
	c.settle(t)
	b.be(true)
	c.send(50)
	a.await(t, 550)
	if st := f.Status(); st.Sends.Peers[1].Acknowledged > 500 || st.Receives.Clients[0].Acknowledged > 500 {
		t.Errorf("acknowledged before all have it: %+v, %+v", st.Sends.Peers, st.Receives.Clients)
	}
	b.be(false)
	c.settle(t)
	testenv.Must(t, f.Stop())
	var want [][]byte
	for i := range uint64(550) {
		want = append(want, record(1, i, c.size(i)))
	}
	samePackets(t, "peer a", a.await(t, 550), want)
	samePackets(t, "peer b", b.await(t, 550), want)
}

// TestSum: a relay adds up the messages of all clients, and acknowledges them once their sum is acknowledged.
func TestSum(t *testing.T) {
	l := newRDMALab(t)
	s := l.newStation(t)
	sink := s.newCollector(t, "127.0.0.1:0")
	f := l.start(t, fmt.Sprintf(`
region: {size: 96MiB}
flows:
  - name: sums
    from: {rdma: "roce:%s", listen: "%s:7471", window: 16, clients: 3}
    stages: [{sum: {type: int64}}]
    to: {rdma: "roce:%[1]s", peers: [{name: sink, address: "%[3]s", flow: sink}], queue: 64, acknowledge: all}
`, l.B.Ifname, l.B.IP, sink.address()), Options{}).Flows()[0]
	const rounds = 400
	var clients []*client
	for n := range uint64(3) {
		c := s.newClient(t, n+1, l.address(), "sums", 800)
		c.send(rounds)
		clients = append(clients, c)
		if n < 2 { // they run ahead of the last client, as far as there are frames
			await(t, f, "no credit to be left", func(s status.Flow) bool {
				return s.Receives.Connected == n+1 && !slices.ContainsFunc(s.Receives.Clients, func(c status.Client) bool { return c.Sequence == 0 || c.Sequence < c.Limit })
			})
		}
	}
	for _, c := range clients {
		c.settle(t)
	}
	for i, got := range sink.await(t, rounds) {
		want := make([]byte, 800)
		for _, c := range clients {
			part := record(c.number, uint64(i), 800)
			for at := 0; at < len(want); at += 8 {
				le := binary.LittleEndian
				le.PutUint64(want[at:], le.Uint64(want[at:])+le.Uint64(part[at:]))
			}
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("sum %d is %x, want %x", i, got, want)
		}
	}
	if st := f.Status(); st.Stages[0].Changed != 2*rounds {
		t.Errorf("the stages: %+v", st.Stages)
	}
	testenv.Must(t, f.Stop())
	if n := sink.count(); n != rounds {
		t.Errorf("%d sums of %d rounds", n, rounds)
	}
}

// TestSumRejects: a relay rejects a message that does not fit its sum each time the client sends it, and the
// client's later messages wait for it. Another client may then contribute that part.
func TestSumRejects(t *testing.T) {
	l := newRDMALab(t)
	s := l.newStation(t)
	sink := s.newCollector(t, "127.0.0.1:0")
	f := l.start(t, fmt.Sprintf(`
region: {size: 96MiB}
flows:
  - name: sums
    from: {rdma: "roce:%s", listen: "%s:7471", window: 16, clients: 2}
    stages: [{sum: {type: int64}}]
    to: {rdma: "roce:%[1]s", peers: [{name: sink, address: "%[3]s", flow: sink}], queue: 64}
`, l.B.Ifname, l.B.IP, sink.address()), Options{}).Flows()[0]
	a, b := s.newClient(t, 1, l.address(), "sums", 800), s.newClient(t, 2, l.address(), "sums", 800, 800, 792)
	a.send(3)
	await(t, f, "one client's messages", func(s status.Flow) bool { return s.Packets == 3 })
	b.send(5)
	st := await(t, f, "a message to be rejected again", func(s status.Flow) bool { return s.Receives.Refused["bad_length"] >= 2 })
	for _, c := range st.Receives.Clients {
		if c.Acknowledged > 2 {
			t.Errorf("a sum without all its parts is acknowledged: %+v", c)
		}
	}
	sink.await(t, 2)
	b.stop()
	c := s.newClient(t, 3, l.address(), "sums", 800)
	c.send(1)
	a.settle(t)
	c.settle(t)
	want, part := record(1, 2, 800), record(3, 0, 800)
	for at := 0; at < len(want); at += 8 {
		le := binary.LittleEndian
		le.PutUint64(want[at:], le.Uint64(want[at:])+le.Uint64(part[at:]))
	}
	if got := sink.await(t, 3)[2]; !bytes.Equal(got, want) {
		t.Errorf("the sum is %x, want %x", got, want)
	}
	testenv.Must(t, f.Stop())
	if n := f.Status().Dropped["not_acknowledged"]; n != 0 {
		t.Errorf("%d messages are called lost", n)
	}
}

// TestSumRestart: a client that starts again with a new session contributes no part twice. A client that does
// not identify itself is refused.
func TestSumRestart(t *testing.T) {
	l := newRDMALab(t)
	s := l.newStation(t)
	sink := s.newCollector(t, "127.0.0.1:0")
	f := l.start(t, fmt.Sprintf(`
region: {size: 96MiB}
flows:
  - name: sums
    from: {rdma: "roce:%s", listen: "%s:7471", window: 16, clients: 2}
    stages: [{sum: {type: int64}}]
    to: {rdma: "roce:%[1]s", peers: [{name: sink, address: "%[3]s", flow: sink}], queue: 64}
`, l.B.Ifname, l.B.IP, sink.address()), Options{}).Flows()[0]
	nobody := s.newClient(t, 0, l.address(), "sums", 800)
	await(t, f, "who says no name to be refused", func(s status.Flow) bool { return s.Receives.Refused["not_permitted"] > 0 })
	nobody.stop()
	a := s.newClient(t, 1, l.address(), "sums", 800)
	a.send(3)
	await(t, f, "one client's messages", func(s status.Flow) bool { return s.Packets == 3 })
	a.stop()
	a = s.newClient(t, 1, l.address(), "sums", 800)
	a.send(5)
	await(t, f, "duplicates", func(s status.Flow) bool { return s.Packets == 8 && s.Stages[0].Left["duplicate"] == 3 })
	if n := sink.count(); n != 0 {
		t.Fatalf("%d sums without one client's part", n)
	}
	b := s.newClient(t, 2, l.address(), "sums", 800)
	b.send(5)
	a.settle(t)
	b.settle(t)
	for i, got := range sink.await(t, 5) {
		want, part := record(1, uint64(i), 800), record(2, uint64(i), 800)
		for at := 0; at < len(want); at += 8 {
			le := binary.LittleEndian
			le.PutUint64(want[at:], le.Uint64(want[at:])+le.Uint64(part[at:]))
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("sum %d is %x, want %x", i, got, want)
		}
	}
	testenv.Must(t, f.Stop())
	if n := f.Status().Dropped["not_acknowledged"]; n != 0 {
		t.Errorf("%d messages are called lost", n)
	}
}

// TestBlocks: a client reads a file through the daemon, byte for byte.
func TestBlocks(t *testing.T) {
	l := newRDMALab(t)
	s := l.newStation(t)
	name, want := l.dir+"/served", make([]byte, 3<<20)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(want)
	testenv.Must(t, os.WriteFile(name, want, 0o600))
	f := l.start(t, fmt.Sprintf(`
region: {size: 96MiB, extent: 256KiB, extents: 48}
flows:
  - name: served
    from: {file: "%s"}
    to: {rdma: "roce:%s", listen: "%s:7472", clients: 2, window: 4, transfer: 256KiB, cache: 4MiB}
`, name, l.B.Ifname, l.B.IP), Options{}).Flows()[0]
	book := s.region.NewBook("reader")
	hands, err := book.NewHolder(umem.OwnerWorker, "reader")
	testenv.Must(t, err)
	frame := make([]umem.Frame, 1)
	hands.TakeExtents(frame)
	var c *blocks.Client
	l.A.Do(t, func() {
		c, err = blocks.Dial(t.Context(), blocks.ClientConfig{Name: "reader", Endpoint: s.endpoint, Worker: hands, Address: fmt.Sprintf("%s:7472", l.B.IP), Flow: "served", Window: 4})
	})
	testenv.Must(t, err)
	for range 2 { // the second time from the cache
		for at := 0; at < len(want); at += 256 << 10 {
			piece := umem.Frame{Addr: frame[0].Addr, Len: 256 << 10}
			if err := c.Read(t.Context(), uint64(at), piece); err != nil {
				t.Fatalf("read at %d: %v", at, err)
			}
			if !bytes.Equal(s.region.Bytes(piece), want[at:at+256<<10]) {
				t.Fatalf("what is at %d differs", at)
			}
		}
	}
	st := await(t, f, "all to be known to have arrived", func(s status.Flow) bool { return s.Blocks.Served == 24 })
	if b := st.Blocks; st.Bytes != 6<<20 || len(b.Clients) != 1 || b.Frames.Hits+b.Extents.Hits == 0 {
		t.Errorf("the status is %+v", b)
	}
	testenv.Check(t, c.Close())
	hands.Close()
	testenv.Check(t, book.Close())
	testenv.Check(t, f.Stop())
}
