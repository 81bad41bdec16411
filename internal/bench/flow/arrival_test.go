package flow

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// bed is programs and a veth pair.
type bed struct {
	*bench.Report
	pair             *testenv.Pair
	unifiedd, sender string // paths of programs
	dir              string // on a disk
}

// TestAgainstArrival measures the time from the arrival of a packet until the flow submits it to the disk or
// the RDMA device, and until that has completed it.
func TestAgainstArrival(t *testing.T) {
	r := bench.Start(t, "flow-times", "Frame in to device", "unifiedd", "nothing")
	testenv.HugePages(t, 200<<20) // for two daemons
	b := &bed{r, testenv.NewPair(t, testenv.PairOptions{}), testenv.Program(t, "cmd/unifiedd"), testenv.Program(t, "selftests/unified-xdp-test"), testenv.DiskDir(t)}
	for _, wait := range []string{"sleep", "spin"} {
		for _, layout := range []string{"packed", "slot"} {
			b.toStorage(wait, layout)
		}
		b.toRDMA(wait)
	}
	r.Finish(
		fmt.Sprintf("Each flow alone, %v at 20000 packets/s of 512 bytes over veth in copy mode. Arrival is the kernel's stamp.", r.Form.Span),
		"To the disk: told when the write was submitted, done when it was written; a packet waits for others of its batch, 10 ms at most. To RDMA (RoCE in software): told when the message was posted, done when the peer has acknowledged it.",
		"A worker that sleeps does so for 200 µs when there is nothing to do. Sender, daemon and peer share the machine's processors.")
}

// launch starts a daemon at an end.
func (b *bed) launch(e *testenv.End, text string) *daemon.Daemon {
	b.Helper()
	d := daemon.Launch(b.T, b.unifiedd, e, b.TempDir(), text)
	d.Begun(b.T)
	return d
}

// send sends packets from one interface to its peer.
func (b *bed) send(e *testenv.End, iface string) int {
	b.Helper()
	const rate = 20000
	count := int(b.Form.Span.Seconds() * rate)
	e.Run(b, b.sender, "-tx", "-pages", "ordinary", "-wait", "sleep", "-sleep", "50us", "-ring", "1024", "-rate", strconv.Itoa(rate),
		"-size", "512", "-count", strconv.Itoa(count), iface)
	return count
}

// taken waits until the flow of a daemon has taken its packets, notes its latencies, and ends the daemon.
func (b *bed) taken(d *daemon.Daemon, name, done string, count int) {
	b.Helper()
	lost := func(f *status.Flow) (n uint64) {
		for _, k := range f.Dropped {
			n += k
		}
		return n
	}
	s := d.Until(b.T, "all to be taken", func(s *status.Daemon) bool {
		f := &s.Flows[0]
		return f.Packets+lost(f) >= uint64(count) && f.FrameTimes.Done != nil && uint64(f.FrameTimes.Done.Count) == f.Packets
	})
	f := &s.Flows[0]
	for what, times := range map[string]*latency.Distribution{"submitted": f.FrameTimes.Submitted, done: f.FrameTimes.Done} {
		b.Notes = append(b.Notes, fmt.Sprintf("%s, %s: median %v, 99 %% %v, 99.9 %% %v, most %v; %d packets, %d lost.", name, what,
			time.Duration(times.P50), time.Duration(times.P99), time.Duration(times.P999), time.Duration(times.Max), times.Count, lost(f)))
	}
	d.Terminate(b.T)
}

func (b *bed) toStorage(wait, layout string) {
	b.Helper()
	d := b.launch(&b.pair.B, fmt.Sprintf(`
region: {size: 96MiB}
workers: [{name: main, wait: %s}]
flows:
  - name: capture
    from: {interface: %s, ring: 2048, filter: udp}
    to: {file: %s/%s-%[1]s, layout: %[4]s, segment: {size: 64MiB}, flush: 10ms}
`, wait, b.pair.B.Ifname, b.dir, layout))
	b.taken(d, "network to storage, "+layout+", "+wait, "written", b.send(&b.pair.A, b.pair.A.Ifname))
}

// toRDMA sends packets of another pair to a peer at end A, which discards them.
func (b *bed) toRDMA(wait string) {
	b.Helper()
	far := &b.pair.B
	far.Run(b, "ip", "link", "add", "side0", "type", "veth", "peer", "name", "side1")
	for _, name := range []string{"side0", "side1"} {
		far.Run(b, "sysctl", "-qw", "net.ipv6.conf."+name+".disable_ipv6=1")
		far.Run(b, "ip", "link", "set", name, "up")
	}
	peer := b.launch(&b.pair.A, fmt.Sprintf(`
region: {size: 64MiB, pages: ordinary}
flows:
  - name: peer
    from: {rdma: "roce:%s", listen: "%s:7471", window: 1024, clients: 1}
    to: {discard: true}
`, b.pair.A.Ifname, b.pair.A.IP))
	d := b.launch(far, fmt.Sprintf(`
region: {size: 96MiB}
workers: [{name: main, wait: %s}]
flows:
  - name: feed
    from: {interface: side1, ring: 2048, filter: udp}
    to: {rdma: "roce:%s", peers: [{name: peer, address: "%s:7471", flow: peer}]}
`, wait, far.Ifname, b.pair.A.IP))
	d.Until(b.T, "the peer", func(s *status.Daemon) bool { return s.Flows[0].Sends.Peers[0].State == "connected" })
	b.taken(d, "network to RDMA, "+wait, "acknowledged", b.send(far, "side0"))
	peer.Terminate(b.T)
	far.Run(b, "ip", "link", "del", "side0")
}
