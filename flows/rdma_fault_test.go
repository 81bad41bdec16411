package flows

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// becomes waits until a flow is in a state and its error contains all texts.
func becomes(t *testing.T, f *Flow, state status.State, texts ...string) status.Flow {
	t.Helper()
	return await(t, f, string(state), func(s status.Flow) bool {
		for _, text := range texts {
			if !strings.Contains(s.Error, text) {
				return false
			}
		}
		return s.State == state
	})
}

// TestLogFullDisk: while the disk of a log is full, its clients wait and other clients can connect. When
// there is space again, no message is missing.
func TestLogFullDisk(t *testing.T) {
	testenv.Long(t, "it fills a disk in each layout, and TestDiskFull does that to the same end of a flow")
	for _, layout := range shortly() {
		t.Run(layout, func(t *testing.T) {
			l := newRDMALab(t)
			l.dir = testenv.Ext4(t, 32<<20)
			text := strings.Replace(l.logConfig("layout: "+layout, ""), "prepare: zero", "prepare: none", 1)
			f := l.start(t, text, Options{}).Flows()[0]
			s := l.newStation(t)
			a := s.newClient(t, 1, l.address(), "wal", 2000)
			a.send(100)
			a.settle(t)
			ballast := fill(t, l.dir)
			a.send(4000)
			st := becomes(t, f, status.Waiting, "no space left", "make room", "clients wait")
			if st.Log.Acknowledged > st.Log.Durable || st.Receives.Posted < 4 {
				t.Errorf("the status is %+v, of the log %+v, of clients %+v", st, st.Log, st.Receives)
			}
			b := s.newClient(t, 2, l.address(), "wal", 100)
			b.send(1)
			await(t, f, "another client", func(s status.Flow) bool { return s.Receives.Connected == 2 })
			testenv.Must(t, os.Remove(ballast))
			becomes(t, f, status.Running)
			a.settle(t)
			b.settle(t)
			testenv.Must(t, f.Stop())
			l.logged(t, a, b)
		})
	}
}

// TestLogDiskError: a log on a device that fails ends, and its clients keep the messages that were not
// acknowledged. When the log starts again, they send them.
func TestLogDiskError(t *testing.T) {
	testenv.Long(t, "it fails a disk, and TestDiskError does that to the same end of a flow")
	l := newRDMALab(t)
	dev := testenv.Zram(t, 64<<20)
	text := fmt.Sprintf(`
region: {size: 96MiB}
flows:
  - name: wal
    from: {rdma: "roce:%s", listen: "%s:7471", window: 16, clients: 4}
    to: {device: %s, segment: {size: 8MiB}}
`, l.B.Ifname, l.B.IP, dev)
	f := l.start(t, text, Options{}).Flows()[0]
	c := l.newStation(t).newClient(t, 1, l.address(), "wal", 700)
	c.send(100)
	c.settle(t)
	limit := "/sys/block/" + filepath.Base(dev) + "/mem_limit"
	testenv.Must(t, os.WriteFile(limit, []byte("4096"), 0))
	c.send(1000)
	st := becomes(t, f, status.Failed, "write to "+dev, "input/output error")
	if st.Log.Acknowledged > st.Log.Durable || st.Log.Acknowledged < 100 {
		t.Errorf("the log's status is %+v", st.Log)
	}
	l.framesBack(t)
	testenv.Must(t, os.WriteFile(limit, []byte("0"), 0))
	l.begin(t, f.Start)
	c.settle(t)
	testenv.Must(t, f.Stop())
	report, err := journal.Verify(dev)
	if err != nil || !report.Intact() || report.Records != 1100 || report.First != 1 {
		t.Errorf("the log has %d records from %d on, %d lost: %v", report.Records, report.First, report.Lost, err)
	}
}

// TestRDMAInterfaceRemoved: when the interface of a flow's RDMA device is removed under load, the flow fails and names
// the device, also if it was to send to peers. Every message is accounted for, and every frame is free again.
func TestRDMAInterfaceRemoved(t *testing.T) {
	testenv.Root(t)
	for _, flow := range overRDMA {
		t.Run(flow.name, func(t *testing.T) {
			testenv.Leaks(t)
			testenv.HugePages(t, 100<<20)
			ends := testenv.NewSwitch(t, 2, testenv.PairOptions{}) // the other end keeps its interface
			l := &lab{Pair: &testenv.Pair{A: *ends[0], B: *ends[1], MTU: 1500, Queues: 1}, dir: t.TempDir()}
			flow.lose(t, l, func() { l.B.Delete(t) })
		})
	}
}

// overRDMA are flows whose device at end B is taken away.
var overRDMA = []struct {
	name string
	lose func(t *testing.T, l *lab, take func())
}{{"to peers", loseToPeers}, {"from clients", loseFromClients}}

// loseToPeers has a flow send captured packets to a peer. Each message is acknowledged, or counted as one that the peer
// did not get.
func loseToPeers(t *testing.T, l *lab, take func()) {
	t.Helper()
	from, to := l.side(t)
	peer := l.newStation(t).newCollector(t, "127.0.0.1:0")
	f := l.start(t, fmt.Sprintf(`
region: {size: 96MiB}
flows:
  - name: feed
    from: {interface: %s, ring: 2048, filter: udp dst port 5000}
    to: {rdma: "roce:%s", peers: [{name: a, address: "%s", flow: sink}], queue: 256}
`, to.Ifname, l.B.Ifname, peer.address()), Options{}).Flows()[0]
	await(t, f, "the peer", func(s status.Flow) bool { return s.Sends.Peers[0].Credit > 0 })
	end := load(t, &from, &to, 0)
	await(t, f, "the load", func(s status.Flow) bool { return s.Sends.Peers[0].Acknowledged > 200 })
	take()
	becomes(t, f, status.Failed, "roce:"+l.B.Ifname, "the device is gone")
	end()
	s := await(t, f, "each packet to be accounted for", func(s status.Flow) bool { // what is counted is shown some time later
		p := s.Sends.Peers[0]
		accounted := p.Acknowledged
		for _, n := range p.Dropped {
			accounted += n
		}
		return p.Offered == accounted && p.Waiting+p.InFlight == 0 && s.Packets == p.Offered+s.Dropped["write_failed"]
	})
	p := s.Sends.Peers[0]
	l.framesBack(t)
	got := peer.await(t, int(p.Acknowledged))
	if uint64(len(got)) > p.Offered {
		t.Errorf("the peer has %d messages of %d", len(got), p.Offered)
	}
	increasing(t, got)
	l.B.Do(t, func() {
		if err := f.Start(); err == nil {
			t.Error("the flow starts without its device")
		} else {
			testenv.MessageNames(t, err.Error(), []string{"start flow feed", l.B.Ifname, "ip link"})
		}
	})
}

// loseFromClients has a client append to a log. The log has what was acknowledged, and nothing that was not sent.
func loseFromClients(t *testing.T, l *lab, take func()) {
	t.Helper()
	f := l.start(t, l.logConfig("acknowledge: written", ""), Options{}).Flows()[0]
	c := l.newStation(t).newClient(t, 1, l.address(), "wal", 700)
	c.send(1 << 30)
	await(t, f, "the load", func(s status.Flow) bool { return s.Log.Acknowledged > 200 })
	take()
	s := becomes(t, f, status.Failed, "roce:"+l.B.Ifname, "the device is gone")
	c.stop()
	l.framesBack(t)
	all := l.entries(t)
	for i, e := range all {
		if !bytes.Equal(e.payload, record(1, uint64(i), 700)) {
			t.Fatalf("record %d is not the client's", i)
		}
	}
	if n := uint64(len(all)); n < c.done || n < s.Log.Acknowledged || n != s.Log.Written || n != s.Packets || n > c.sent {
		t.Errorf("the log has %d records, %d were acknowledged to the client, which sent %d: %+v", n, c.done, c.sent, s.Log)
	}
}

// framesBack waits until all frames are back in the pool.
func (l *lab) framesBack(t *testing.T) {
	t.Helper()
	testenv.Wait(t, 10*time.Second, "all frames back", func() bool { return l.daemon.Region().Snapshot().Of(umem.OwnerPool) == l.daemon.Region().Frames() })
}

// increasing checks that packets are whole, and that each has a greater number than the one before it.
func increasing(t *testing.T, got [][]byte) {
	t.Helper()
	next := uint64(0)
	for i, p := range got {
		n, ok := testenv.Sequence(p)
		if !ok || n < next || !testenv.Intact(p) {
			t.Fatalf("packet %d has number %d, which should be %d or more", i, n, next)
		}
		next = n + 1
	}
}

// load sends numbered packets, whether they arrive or not, until end is called.
func load(t *testing.T, from, to *testenv.End, number uint64) (end func()) {
	t.Helper()
	quit, done := make(chan struct{}), make(chan struct{})
	s := testenv.NewSender(t, from)
	go func() {
		defer close(done)
		for {
			for range 20 {
				_, _ = s.Send(testenv.UDP(from, to, 5000, number, 1000)) // the interface may be gone
				number++
			}
			select {
			case <-quit:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	return func() { close(quit); <-done }
}
