package flows

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/blocks"
	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/layout"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce"
	"github.com/unifiedd/unifiedd/umem"
)

// watched is the number of messages. The test searches the whole region for each of them.
var watched = 8

// Each message is in one packet, and is long enough that RoCE in software gathers it.
const (
	watchedSize = 1800
	markAt      = 100 // offset in a payload of 32 bytes that are nowhere else
	markLen     = 32
)

// landings returns in how many places of the region a message may be that came over RDMA. It is where it
// landed and, with RoCE in software, also in the frame of the packet that it was placed from.
func landings() int {
	if verbsDevice == "" {
		return 2
	}
	return 1
}

// anyGID is a setting of a flow that clients connect to. On a device of the kernel their queue pairs have the device's
// address, and their connections that of their namespace.
func anyGID() string {
	if verbsDevice == "" {
		return ""
	}
	return ", allow_any_gid: true"
}

// addressLab is a daemon with one flow, whose RDMA device is a spy, and a station for its peers.
type addressLab struct {
	*lab
	*station
	spy  *spy
	flow *Flow
	seen sightings
}

// newAddressLab opens the daemon and the station. The region has this size, and text returns the rest of the
// configuration.
func newAddressLab(t *testing.T, size string, text func(l *lab, s *station) string) *addressLab {
	t.Helper()
	a := &addressLab{lab: newLab(t, testenv.PairOptions{MTU: 2300})}
	a.station = a.lab.newStation(t)
	d := a.open(t, "\nregion: {size: "+size+", extent: 256KiB, extents: 40}\n"+text(a.lab, a.station), Options{})
	a.spy = a.spied(t, d)
	a.spy.sent = func([]rdma.SGE) {}
	a.flow = d.Flows()[0]
	return a
}

// TestWhereItLanded shows by address that a flow over RDMA passes a message on from where it landed: when the
// next device gets the message, it is nowhere else in the region.
func TestWhereItLanded(t *testing.T) {
	t.Run("feed", testFeedByAddress)
	t.Run("wal", testLogByAddress)
	t.Run("relay", testRelayByAddress)
	t.Run("blocks", testBlocksByAddress)
}

// watchSends looks for the marks in each part of each work request.
func (a *addressLab) watchSends(marks [][]byte) {
	a.seen.want(a.flow.region, marks)
	base := a.base()
	a.spy.sent = func(sges []rdma.SGE) {
		for _, e := range sges {
			a.seen.look(e.Addr-base, e.Length)
		}
	}
}

// base returns the address that the device uses for the start of the region.
func (a *addressLab) base() uint64 { return a.daemon.devices.Lookup(rdmaName(&a.lab.B)).Memory.Addr() }

// notCopied checks that a flow copied nothing, except for the bytes that RoCE in software places.
func (a *addressLab) notCopied(t *testing.T, placed uint64) {
	t.Helper()
	for reason, n := range a.flow.Status().CopiedBytes {
		want := uint64(0)
		if reason == "placed" {
			want = placed
		}
		if n != want {
			t.Errorf("%d bytes were copied, not %d: %s", n, want, reason)
		}
	}
	a.placedExactly(t, placed)
}

// placedExactly checks that RoCE in software placed the messages, and otherwise only acknowledgements and
// requests, which have 64 bytes. Of what it sends, it may copy only these.
func (a *addressLab) placedExactly(t *testing.T, placed uint64) {
	t.Helper()
	soft, is := a.spy.Device.(*roce.Device)
	if !is {
		return
	}
	var s status.RDMADevice
	device.CountCopies(&s, soft.Counters())
	// A message's length is no multiple of 64, and all of them together have more bytes than most. The number
	// of acknowledgements depends on timing.
	small, most := uint64(64), uint64(4*64*watched)
	if more := s.Placed - placed; more%small != 0 || more > most {
		t.Errorf("%d bytes were placed: those of messages, %d, and other than small ones", s.Placed, placed)
	}
	for reason, n := range s.SentCopied {
		if n != 0 && (reason != "short" || n%small != 0 || n > most) {
			t.Errorf("%d bytes were copied to be sent: %s", n, reason)
		}
	}
}

// markPackets makes packets with marks.
func markPackets(from, to *testenv.End) (packets, marks [][]byte) {
	fill := rand.NewChaCha8([32]byte{9})
	for i := range watched {
		p := testenv.UDP(from, to, 9, uint64(i), 1400)
		mark := p[markAt+42:][:markLen]
		_, _ = fill.Read(mark)
		packets, marks = append(packets, p), append(marks, mark)
	}
	return packets, marks
}

// markRecords returns the marks of a client's records.
func markRecords(number uint64) (marks [][]byte) {
	for i := range uint64(watched) {
		marks = append(marks, record(number, i, watchedSize)[markAt:][:markLen])
	}
	return marks
}

func testFeedByAddress(t *testing.T) {
	var from, to testenv.End
	var sink *collector
	a := newAddressLab(t, "24MiB", func(l *lab, s *station) string {
		from, to = l.A, l.B
		if !l.IsCard() {
			from, to = l.side(t)
		}
		sink = s.newCollector(t, "127.0.0.1:0")
		return fmt.Sprintf(`
flows:
  - name: feed
    from: {interface: %s, ring: 256, filter: udp dst port 9}
    to: {rdma: %q, peers: [{name: sink, address: %q, flow: sink}], queue: 64}
`, to.Ifname, rdmaName(&l.B), sink.address())
	})
	packets, marks := markPackets(&from, &to)
	a.watchSends(marks)
	a.begin(t, a.daemon.Start)
	await(t, a.flow, "the peer", func(s status.Flow) bool { return s.Sends.Peers[0].Credit > 0 })
	testenv.SendRaw(t, &from, packets, testenv.SendOptions{Rate: 100})
	samePackets(t, "the peer", sink.await(t, watched), packets)
	a.seen.judge(t, 1)
	for i, at := range a.seen.given {
		start, _ := a.flow.region.Start(umem.Frame{Addr: at})
		if at-start != umem.PacketHeadroom+42+markAt {
			t.Errorf("packet %d was sent from %d bytes into its frame, where the card does not put it", i, at-start)
		}
	}
	a.notCopied(t, 0)
}

func testRelayByAddress(t *testing.T) {
	if verbsDevice != "" {
		testenv.Long(t, "make lab runs it: the feed stands for it, and on RoCE in software it runs always")
	}
	var sink *collector
	a := newAddressLab(t, "24MiB", func(l *lab, s *station) string {
		sink = s.newCollector(t, "127.0.0.1:0")
		return fmt.Sprintf(`
flows:
  - name: relay
    from: {rdma: %q, listen: "%s:7471", window: 16, clients: 2%[4]s}
    to: {rdma: %[1]q, peers: [{name: sink, address: %[3]q, flow: sink}], queue: 64, acknowledge: all}
`, rdmaName(&l.B), l.B.IP, sink.address(), anyGID())
	})
	a.watchSends(markRecords(1))
	a.begin(t, a.daemon.Start)
	c := a.newClient(t, 1, a.address(), "relay", watchedSize)
	c.send(watched)
	c.settle(t)
	var want [][]byte
	for i := range uint64(watched) {
		want = append(want, record(1, i, watchedSize))
	}
	samePackets(t, "the peer", sink.await(t, watched), want)
	a.seen.judge(t, landings())
	a.landedInReceives(t)
	a.notCopied(t, uint64(watched*(64+watchedSize)))
}

// TestClass: queue pairs have the traffic class and priority of their flow's source or sink, or those of their peer.
func TestClass(t *testing.T) {
	var one, other *collector
	a := newAddressLab(t, "24MiB", func(l *lab, s *station) string {
		one, other = s.newCollector(t, "127.0.0.1:0"), s.newCollector(t, "127.0.0.1:0")
		return fmt.Sprintf(`
flows:
  - name: relay
    from: {rdma: {device: %q, traffic_class: 104, priority: 3}, listen: "%s:7471", window: 16, clients: 2}
    to:
      rdma: {device: %[1]q, traffic_class: 72}
      peers: [{name: one, address: %[3]q, flow: sink}, {name: other, address: %q, flow: sink, traffic_class: 0, priority: 5}]
      queue: 64
`, rdmaName(&l.B), l.B.IP, one.address(), other.address())
	})
	a.begin(t, a.daemon.Start)
	c := a.newClient(t, 1, a.address(), "relay", watchedSize)
	c.send(watched)
	c.settle(t)
	one.await(t, watched)
	other.await(t, watched)
	a.spy.mu.Lock()
	defer a.spy.mu.Unlock()
	got := map[[2]uint8]int{}
	for _, p := range a.spy.paths {
		got[[2]uint8{p.TrafficClass, p.SL}]++
	}
	if len(a.spy.paths) != 3 || got[[2]uint8{104, 3}] != 1 || got[[2]uint8{72, 0}] != 1 || got[[2]uint8{0, 5}] != 1 {
		t.Errorf("queue pairs have these classes and priorities: %v", got)
	}
}

// landedInReceives checks that each message was sent on from a posted receive, from behind the message's
// header.
func (a *addressLab) landedInReceives(t *testing.T) {
	t.Helper()
	for i, at := range a.seen.given {
		if !a.spy.isPosted(a.base() + at - markAt - 64) {
			t.Errorf("message %d goes on from %#x, for which no receive was posted", i, at)
		}
	}
}

func testLogByAddress(t *testing.T) {
	if verbsDevice != "" {
		testenv.Long(t, "make lab runs it; the feed stands for it, and on RoCE in software it runs always")
	}
	a := newAddressLab(t, "64MiB", func(l *lab, _ *station) string {
		return fmt.Sprintf(`
flows:
  - name: wal
    from: {rdma: %q, listen: "%s:7471", window: 16, clients: 2%s}
    to: {file: "%s/wal", segment: {size: 32MiB}, layout: slot, acknowledge: durable}
`, rdmaName(&l.B), l.B.IP, anyGID(), l.dir)
	})
	a.begin(t, a.daemon.Start)
	a.seen.want(a.flow.region, markRecords(1))
	wrapLayout(t, a.flow, func(l layout.Layout) layout.Layout { return &sealed{Layout: l, seen: &a.seen} })
	c := a.newClient(t, 1, a.address(), "wal", watchedSize)
	c.send(watched)
	c.settle(t)
	a.seen.judge(t, landings())
	a.landedInReceives(t)
	a.notCopied(t, uint64(watched*(64+watchedSize)))
	testenv.Must(t, a.flow.Stop())
	a.logged(t, c)
}

// sealed is a layout that notes the frames that the disk gets.
type sealed struct {
	layout.Layout
	seen *sightings
}

func (w *sealed) Seal(b pcapng.Batch) []umem.Frame {
	message := w.Layout.Seal(b)
	for _, f := range message {
		w.seen.look(f.Addr, f.Len)
	}
	return message
}

func testBlocksByAddress(t *testing.T) {
	if verbsDevice != "" {
		testenv.Long(t, "make lab runs it; on RoCE in software it runs always")
	}
	content := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(content)
	const length = 16 << 10
	a := newAddressLab(t, "24MiB", func(l *lab, _ *station) string {
		name := l.dir + "/served"
		testenv.Must(t, os.WriteFile(name, content, 0o600))
		return fmt.Sprintf(`
flows:
  - name: served
    from: {file: %q}
    to: {rdma: %q, listen: "%s:7472", clients: 2, window: 2, transfer: 16KiB%s}
`, name, rdmaName(&l.B), l.B.IP, anyGID())
	})
	var marks [][]byte
	for i := range watched {
		marks = append(marks, content[i*length+markAt:][:markLen])
	}
	a.watchSends(marks)
	a.begin(t, a.daemon.Start)
	a.fetch(t, content, length)
	a.seen.judge(t, 1)
	a.notCopied(t, 0)
}

// fetch reads blocks one after the other, and compares them with what is served.
func (a *addressLab) fetch(t *testing.T, content []byte, length int) {
	t.Helper()
	region := a.station.region
	book := region.NewBook("reader")
	hands, err := book.NewHolder(umem.OwnerWorker, "reader")
	testenv.Must(t, err)
	frame := make([]umem.Frame, 1)
	hands.TakeExtents(frame)
	var c *blocks.Client
	a.lab.A.Do(t, func() {
		c, err = blocks.Dial(t.Context(), blocks.ClientConfig{Name: "reader", Endpoint: a.endpoint, Worker: hands, Address: fmt.Sprintf("%s:7472", a.lab.B.IP), Flow: "served", Window: 2})
	})
	testenv.Must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for i := range watched {
		piece := umem.Frame{Addr: frame[0].Addr, Len: uint32(length)}
		testenv.Must(t, c.Read(ctx, uint64(i*length), piece))
		if string(region.Bytes(piece)) != string(content[i*length:][:length]) {
			t.Errorf("piece %d differs", i)
		}
	}
	await(t, a.flow, "all to be known to have arrived", func(s status.Flow) bool { return s.Blocks.Served == uint64(watched) })
	testenv.Check(t, c.Close())
	hands.Give(frame)
	hands.Close()
	testenv.Check(t, book.Close())
}
