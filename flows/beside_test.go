package flows

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
)

// capturer is one of several flows on end B's interface: its name, filter and layout.
type capturer struct{ name, filter, layout string }

// beside returns a configuration with these flows.
func (l *lab) beside(all ...capturer) string {
	var text strings.Builder
	text.WriteString("region: {size: 96MiB, extents: 24}\nflows:\n")
	for _, c := range all {
		fmt.Fprintf(&text, "  - {name: %s, from: {interface: %s, ring: 1024, filter: %s}, to: {file: %s/%[1]s, layout: %[5]s, segment: {size: 32MiB}, flush: 20ms, durable: 50ms}}\n",
			c.name, l.B.Ifname, c.filter, l.dir, c.layout)
	}
	return text.String()
}

// streamOf is the filter of one of a flood's streams.
func streamOf(n int) string { return fmt.Sprintf("udp dst port %d", firstPort+n) }

// numbersIn returns the numbers of the packets in a flow's segments, in order.
func (l *lab) numbersIn(t *testing.T, flow string) (all []uint64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(l.dir, flow+"*.pcapng"))
	testenv.Must(t, err)
	slices.Sort(files)
	for _, frame := range captures.Packets(t, files...) {
		n, ok := testenv.Sequence(frame)
		if !ok || !testenv.Intact(frame) {
			t.Fatalf("flow %s has a packet that was not sent", flow)
		}
		all = append(all, n)
	}
	return all
}

// hasStream checks that a flow has the packets of one of a flood's streams, each once, at least from first up
// to behind.
func (l *lab) hasStream(t *testing.T, flow string, stream, first, behind uint64) {
	t.Helper()
	got := l.numbersIn(t, flow)
	for i, n := range got {
		if n%streams != stream || i > 0 && n != got[i-1]+streams {
			t.Fatalf("flow %s has as number %d packet %d, behind %d", flow, i, n, got[max(0, i-1)])
		}
	}
	if len(got) == 0 || got[0] > first+streams || got[len(got)-1]+streams < behind {
		t.Errorf("flow %s has %d packets and not all of %d to %d", flow, len(got), first, behind)
	}
}

// TestBeside: flows that share an interface each get the packets that their filters select. If several
// filters match a packet, the first flow gets it; if none matches, the host gets it. When one flow changes
// its filter, stops or is added, the other flows lose nothing.
func TestBeside(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	one, two := capturer{"one", streamOf(0), "packed"}, capturer{"two", streamOf(0) + " or " + streamOf(1), "slot"}
	d := l.start(t, l.beside(one, two), Options{})
	first, second := d.Flows()[0], d.Flows()[1]
	s := l.flood(t, first)
	came := func(f *Flow, n uint64) {
		t.Helper()
		n += f.Status().Packets
		await(t, f, "packets", func(s status.Flow) bool { return s.Packets > n })
	}
	came(first, 200)
	came(second, 200)
	for n := range 6 {
		two.filter = streamOf(1 + n%2)
		if r := l.reloaded(t, l.beside(one, two)); !slices.Equal(r.Plan.Filters, []string{"two"}) {
			t.Fatalf("%+v", r.Plan)
		}
		came(second, 20)
	}
	three := capturer{"three", streamOf(3), "packed"}
	l.reloaded(t, l.beside(one, three, two))
	runs := s.sent.Load()
	came(l.flow(t, "three"), 200)
	l.reloaded(t, l.beside(one, three))
	if st := second.Status(); lost(st) != 0 || st.Packets != st.Written.Packets {
		t.Errorf("flow two: %+v", st)
	}
	came(first, 200)
	sent := s.stop(t)
	third := l.flow(t, "three")
	for _, f := range []*Flow{first, third} {
		testenv.Must(t, f.Stop())
		if st := f.Status(); lost(st) != 0 || st.Missing != 0 {
			t.Errorf("%+v", st)
		}
	}
	balanced(t, first.Status(), sent)
	if st := first.Status(); st.Packets != (sent+streams-1)/streams || st.Passed["other_flow"] < third.Status().Packets {
		t.Errorf("of %d packets: %+v", sent, st)
	}
	l.hasStream(t, "one", 0, 0, sent)
	l.hasStream(t, "three", 3, runs, sent)
}

// flow finds a flow of the daemon.
func (l *lab) flow(t *testing.T, name string) *Flow {
	t.Helper()
	f, err := l.daemon.Flow(name)
	testenv.Must(t, err)
	return f
}

// TestBesideOrder: when a reload changes the order of flows, packets that several filters match go to the
// flow that is now first.
func TestBesideOrder(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	all := []capturer{{"one", streamOf(0), "packed"}, {"two", "udp", "packed"}, {"three", streamOf(1), "packed"}}
	d := l.start(t, l.beside(all...), Options{})
	flows := d.Flows()
	frames := testenv.Stream(&l.A, &l.B, firstPort, 0, 20, 100)
	for n, first := range []int{0, 1, 0} {
		if n > 0 {
			all[0], all[1] = all[1], all[0]
			r := l.reloaded(t, l.beside(all...))
			if !slices.Equal(r.Plan.Filters, []string{all[0].name, all[1].name}) && !slices.Equal(r.Plan.Filters, []string{all[0].name, all[1].name, "three"}) {
				t.Errorf("%+v", r.Plan)
			}
		}
		was := flows[first].Status().Packets
		testenv.SendRaw(t, &l.A, frames, testenv.SendOptions{})
		await(t, flows[first], "packets", func(s status.Flow) bool { return s.Packets == was+20 })
	}
	if s, err := l.reload(t, l.beside(all...)); err != nil || s.Outcome != status.Unchanged {
		t.Errorf("%v, %+v", err, s)
	}
}

// TestBesideTheFirst: when the flow that opened the interface stops and starts again, the other flow loses
// nothing.
func TestBesideTheFirst(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	d := l.start(t, l.beside(capturer{"one", streamOf(0), "slot"}, capturer{"two", streamOf(1), "slot"}), Options{})
	first, second := d.Flows()[0], d.Flows()[1]
	s := l.flood(t, second)
	for range 4 {
		n := second.Status().Packets
		await(t, second, "packets", func(s status.Flow) bool { return s.Packets > n+200 })
		testenv.Must(t, first.Stop())
		if st := first.Status(); lost(st) != 0 || st.Written.Packets != st.Packets {
			t.Errorf("%+v", st)
		}
		l.begin(t, first.Start)
	}
	sent := s.stop(t)
	testenv.Must(t, second.Stop())
	balanced(t, second.Status(), sent)
	l.hasStream(t, "two", 1, 1, sent)
	if n := first.Status().Passed["other_flow"]; n == 0 {
		t.Error("no packet was another flow's")
	}
}

// TestBesideWhoIsStuck: a flow whose disk is full loses its own packets, and the other flow loses none.
func TestBesideWhoIsStuck(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	small := testenv.Ext4(t, 24<<20)
	text := strings.Replace(l.beside(capturer{"one", streamOf(0), "packed"}, capturer{"two", streamOf(1), "packed"}), l.dir+"/one", small+"/one", 1)
	text = strings.Replace(text, "flush: 20ms, durable: 50ms", "prepare: none, flush: 20ms, durable: 50ms", 1)
	text = strings.Replace(text, "ring: 1024", "ring: 256", 2)
	d := l.start(t, text, Options{})
	stuck, free := d.Flows()[0], d.Flows()[1]
	stuck.drainTimeout = 500 * time.Millisecond
	fill(t, small)
	s := l.flood(t, free)
	await(t, stuck, "it to lose packets", func(s status.Flow) bool { return s.Dropped["lost_ring_full"] > 0 })
	n := free.Status().Packets
	await(t, free, "packets", func(s status.Flow) bool { return s.Packets > n+300 })
	sent := s.stop(t)
	testenv.Must(t, free.Stop())
	balanced(t, free.Status(), sent)
	if st := free.Status(); lost(st) != 0 || st.Packets != (sent+streams-2)/streams {
		t.Errorf("of %d packets: %+v", sent, st)
	}
	if err := stuck.Stop(); err == nil {
		t.Error("it stopped as if all were written")
	}
	if st := stuck.Status(); st.Dropped["lost_no_frames"] != 0 {
		t.Errorf("%+v", st)
	}
}

// TestBesideAFeed: packets go to RDMA peers and to a disk from one interface.
func TestBesideAFeed(t *testing.T) {
	l := newRDMALab(t)
	from, to := l.side(t)
	s := l.newStation(t)
	a := s.newCollector(t, "127.0.0.1:0")
	d := l.start(t, fmt.Sprintf(`
region: {size: 96MiB}
flows:
  - name: feed
    from: {interface: %s, ring: 1024, filter: [{name: ours, match: udp dst port 9}]}
    to: {rdma: "roce:%s", peers: [{name: a, address: "%s", flow: sink}], queue: 256}
  - name: cap
    from: {interface: %[1]s, ring: 1024, filter: [{name: late, match: udp dst port 9}, {name: rest, match: udp}]}
    to: {file: %[4]s/cap, layout: slot, flush: 20ms, durable: 50ms}
`, to.Ifname, l.B.Ifname, a.address(), l.dir), Options{})
	feed, disk := d.Flows()[0], d.Flows()[1]
	await(t, feed, "the peer", func(s status.Flow) bool { return s.Sends.Peers[0].Credit > 0 })
	var forPeer, forDisk [][]byte
	for i := range 10 {
		forPeer = append(forPeer, testenv.Stream(&from, &to, 9, uint64(i)*50, 50, 600)...)
		forDisk = append(forDisk, testenv.Stream(&from, &to, 10, uint64(i)*50, 50, 600)...)
		testenv.SendRaw(t, &from, append(forPeer[i*50:len(forPeer):len(forPeer)], forDisk[i*50:]...), testenv.SendOptions{})
		a.await(t, len(forPeer))
		await(t, disk, "the disk", func(s status.Flow) bool { return s.Durable.Packets == uint64(len(forDisk)) })
	}
	samePackets(t, "peer a", a.await(t, len(forPeer)), forPeer)
	samePackets(t, "the disk", captures.Packets(t, l.files(t)...), forDisk)
	for _, f := range d.Flows() {
		st := f.Status()
		if lost(st) != 0 || st.Packets != 500 || st.Passed["other_flow"] != 500 || st.Rules[len(st.Rules)-1].Packets != 500 || st.Offered != 1000 {
			t.Errorf("%+v", st)
		}
	}
	if st := disk.Status(); st.Rules[0].Packets != 0 {
		t.Errorf("%+v", st.Rules)
	}
}

// TestBesideRefused: flows that cannot share an interface are refused, by the configuration or when the flow
// starts.
func TestBesideRefused(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	one, two := capturer{"one", streamOf(0), "packed"}, capturer{"two", streamOf(1), "slot"}
	d := l.start(t, l.beside(one), Options{})
	s, err := l.reload(t, l.beside(one, two)) // packets of the first flow land without room for records
	if err == nil || s.Outcome != status.RolledBack || !strings.Contains(err.Error(), "slot layout") {
		t.Errorf("%v, %+v", err, s)
	}
	two.layout = "packed"
	_, err = config.Parse("test.yaml", []byte(strings.Replace(l.beside(one, two), "1024", "1024, zero_copy: copy", 1)), config.Options{})
	if err == nil || !strings.Contains(err.Error(), "shares interface") {
		t.Error(err)
	}
	l.feed(t, d.Flows()[0], testenv.Stream(&l.A, &l.B, firstPort, 0, 10, 100), 0)
	await(t, d.Flows()[0], "packets", func(s status.Flow) bool { return s.Packets == 10 })
}
