package flows

import (
	"fmt"
	"testing"

	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
)

// bounded checks that a flow held no more frames than its high watermark and a burst.
func bounded(t *testing.T, s status.Flow, high int64) {
	t.Helper()
	if l := s.Level; l.High != int(high) || l.Most >= high+pipeline.Burst || l.Held > l.Most {
		t.Errorf("the level is %+v", l)
	}
}

// TestWatermarksOfACapture: a flow with low watermarks stops its source again and again, and loses none of
// the packets that it takes.
func TestWatermarksOfACapture(t *testing.T) {
	for _, layout := range layouts {
		t.Run(layout, func(t *testing.T) {
			l := newLab(t, testenv.PairOptions{NoAddresses: true})
			f := l.start(t, l.defaults(layout)+"    watermarks: {high: 64, low: 1}\n", Options{}).Flows()[0]
			frames := testenv.Stream(&l.A, &l.B, 9, 0, 1500, 700)
			l.feed(t, f, frames, 20000)
			s := await(t, f, "all to be written", func(s status.Flow) bool { return s.Written.Packets+lost(s) >= uint64(len(frames)) })
			if layout == "slot" { // with layout packed, an extent is more than that
				bounded(t, s, 64)
			}
			if s.Level.Pauses == 0 || s.Level.Paused == 0 {
				t.Errorf("the level is %+v", s.Level)
			}
			testenv.Must(t, f.Stop())
			s = f.Status()
			if lost(s) == 0 {
				samePackets(t, "the file", captures.Packets(t, l.files(t)...), frames)
			}
			balanced(t, s, s.Offered)
		})
	}
}

// TestWatermarksOfAFeed: while a peer does not answer, a flow holds frames up to its high watermark. When the
// peer answers again, all packets are acknowledged.
func TestWatermarksOfAFeed(t *testing.T) {
	l := newRDMALab(t)
	s := l.newStation(t)
	sink := s.newCollector(t, "127.0.0.1:0")
	sink.be(true)
	f := l.start(t, fmt.Sprintf(`
region: {size: 96MiB}
flows:
  - name: "null"
    from: {generate: 100}
    watermarks: {high: 300, low: 100}
    to: {rdma: "roce:%s", peers: [{name: sink, address: "%s", flow: sink}], queue: 2048}
`, l.B.Ifname, sink.address()), Options{Count: 3000}).Flows()[0]
	st := await(t, f, "the source to wait", func(s status.Flow) bool { return s.Level.Held >= 300 && s.Level.Paused > 0 })
	bounded(t, st, 300)
	sink.be(false)
	st = await(t, f, "all to be acknowledged", func(s status.Flow) bool { return s.Sends.Peers[0].Acknowledged == 3000 })
	bounded(t, st, 300)
	if st.Level.Pauses < 2 {
		t.Errorf("the level is %+v", st.Level)
	}
	sink.await(t, 3000)
}

// TestWatermarksOfMessages: clients of a log and a relay with low watermarks wait, and all their messages are
// acknowledged.
func TestWatermarksOfMessages(t *testing.T) {
	l := newRDMALab(t)
	s := l.newStation(t)
	sink := s.newCollector(t, "127.0.0.1:0")
	d := l.start(t, fmt.Sprintf(`
region: {size: 96MiB, extent: 1MiB, extents: 12}
flows:
  - name: wal
    from: {rdma: "roce:%s", listen: "%s:7471", window: 256, clients: 2}
    to: {file: "%s/wal", layout: slot, segment: {size: 32MiB}, flush: 1s}
    watermarks: {high: 64, low: 1}
  - name: relay
    from: {rdma: "roce:%[1]s", listen: "%[2]s:7472", window: 256, clients: 2}
    to: {rdma: "roce:%[1]s", peers: [{name: sink, address: "%[4]s", flow: sink}]}
    watermarks: {high: 64, low: 1}
`, l.B.Ifname, l.B.IP, l.dir, sink.address()), Options{})
	a, b := s.newClient(t, 1, l.B.IP.String()+":7471", "wal", 100, 2000), s.newClient(t, 2, l.B.IP.String()+":7472", "relay", 100, 2000)
	for _, c := range []*client{a, b} {
		c.send(1000)
	}
	a.settle(t)
	b.settle(t)
	for _, f := range d.Flows() {
		bounded(t, f.Status(), 64)
	}
	if st := d.Flows()[0].Status(); st.Level.Pauses == 0 {
		t.Errorf("the log's level is %+v", st.Level)
	}
	testenv.Must(t, d.Flows()[0].Stop())
	l.logged(t, a)
}
