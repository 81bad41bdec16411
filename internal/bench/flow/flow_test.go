package flow

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// bed is the machinery of the measurements: programs and a veth pair.
type bed struct {
	*testing.T
	form    bench.Form
	cases   *regexp.Regexp // those that are wanted
	pair    *testenv.Pair
	program map[string]string // paths
	dir     string            // on a disk
}

func newBed(t *testing.T, programs ...string) *bed {
	t.Helper()
	testenv.Root(t)
	form, err := bench.WantedForm()
	if err != nil {
		t.Fatal(err)
	}
	cases, err := bench.WantedCases()
	if err != nil {
		t.Fatal(err)
	}
	testenv.HugePages(t, 200<<20) // for two daemons
	b := &bed{T: t, form: form, cases: cases, pair: testenv.NewPair(t, testenv.PairOptions{}), program: map[string]string{}, dir: testenv.DiskDir(t)}
	for _, name := range programs {
		b.program[filepath.Base(name)] = testenv.Build(t, name)
	}
	return b
}

// launch starts a daemon at an end. The end of the test stops it if it still runs.
func (b *bed) launch(e *testenv.End, text string) *daemon {
	b.Helper()
	d, err := launch(b.program["unifiedd"], b.TempDir(), "warn", text, func(name string, args ...string) *exec.Cmd { return e.Command(name, args...) })
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = d.command.Process.Kill() })
	return d
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// TestAgainstArrival measures the time from the arrival of a packet until the flow submits it to the disk or
// the RDMA device, and until that has completed it.
func TestAgainstArrival(t *testing.T) {
	b := newBed(t, "cmd/unifiedd", "selftests/unified-xdp-test")
	r := bench.NewTimes("Frame in to device")
	r.Notes = []string{
		fmt.Sprintf("Each flow alone, %v at 20000 packets/s of 512 bytes over veth in copy mode; %s form. Arrival is the kernel's stamp.", b.form.Span, b.form.Name),
		"To the disk: told when the write was submitted, done when it was written; a packet waits for others of its batch, 10 ms at most. To RDMA (RoCE in software): told when the message was posted, done when the peer has acknowledged it.",
		"A worker that sleeps does so for 200 µs when there is nothing to do. Sender, daemon and peer share the machine's processors.",
	}
	waits, layouts := []string{"sleep", "spin"}, []string{"packed", "slot"}
	if b.form == bench.Short {
		waits, layouts = waits[:1], layouts[1:]
	}
	for _, wait := range waits {
		for _, layout := range layouts {
			b.toStorage(r, wait, layout)
		}
		b.toRDMA(r, wait)
	}
	b.must(r.Finish(b.Output(), b.form, b.TempDir(), "flow-times"))
}

// send sends packets from one interface to its peer.
func (b *bed) send(e *testenv.End, iface string) int {
	b.Helper()
	const rate = 20000
	count := int(b.form.Span.Seconds() * rate)
	out, err := e.Command(b.program["unified-xdp-test"], "-tx", "-pages", "ordinary", "-wait", "sleep", "-sleep", "50us", "-ring", "1024", "-rate", strconv.Itoa(rate),
		"-size", "512", "-count", strconv.Itoa(count), iface).CombinedOutput()
	if err != nil {
		b.Fatalf("sender: %v\n%s", err, out)
	}
	return count
}

// taken waits until the first flow of a daemon has taken its packets, adds its latencies, and ends the
// daemon.
func (b *bed) taken(r *bench.Times, d *daemon, name, done string, count int) {
	b.Helper()
	s, err := d.until("all to be taken", func(s *status) bool {
		taken, lost := s.packets()
		x := &s.Flows[0].Times
		return taken+lost >= uint64(count) && x.Done != nil && uint64(x.Done.Count) == taken
	})
	b.must(err)
	if _, lost := s.packets(); lost > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%s: %d of %d packets were lost.", name, lost, count))
	}
	b.must(r.Add(name+", submitted", s.Flows[0].Times.Submitted))
	b.must(r.Add(name+", "+done, s.Flows[0].Times.Done))
	b.must(d.stop())
}

func (b *bed) toStorage(r *bench.Times, wait, layout string) {
	b.Helper()
	d := b.launch(&b.pair.B, fmt.Sprintf(`
region: {size: 96MiB}
workers: [{name: main, wait: %s}]
flows:
  - name: capture
    from: {interface: %s, ring: 2048, filter: udp}
    to: {file: %s/%s-%[1]s, layout: %[4]s, segment: {size: 64MiB}, flush: 10ms}
`, wait, b.pair.B.Ifname, b.dir, layout))
	b.taken(r, d, "network to storage, "+layout+", "+wait, "written", b.send(&b.pair.A, b.pair.A.Ifname))
}

// toRDMA sends packets of another pair to a peer at end A, which discards them.
func (b *bed) toRDMA(r *bench.Times, wait string) {
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
	_, err := d.until("the peer", func(s *status) bool { return s.Flows[0].Sends.Peers[0].State == "connected" })
	b.must(err)
	b.taken(r, d, "network to RDMA, "+wait, "acknowledged", b.send(far, "side0"))
	b.must(peer.stop())
	far.Run(b, "ip", "link", "del", "side0")
}

// growth is a case: the cost of a packet with several of something, relative to one.
type growth struct {
	what   string
	counts []int
	bar    float64
	launch func(n int) (*daemon, func())
}

// measure compares each count with one, alternately.
func (b *bed) measure(r *bench.Report, g growth) {
	b.Helper()
	one := func(n int) (ns float64, err error) {
		d, end := g.launch(n)
		defer end()
		time.Sleep(b.form.Span / 4)
		ns, _, err = d.cost(b.form.Span)
		return ns, err
	}
	for _, n := range g.counts {
		name := fmt.Sprintf("%d %s", n, g.what)
		if !b.cases.MatchString(name) {
			continue
		}
		c := bench.Comparison{Case: name, Metric: "processor", Unit: "ns/packet", Better: bench.Less, Bar: g.bar}
		for i := range min(b.form.Rounds, 5) {
			var p bench.Pair
			b.must(bench.Round(i, func() (err error) { p.Ours, err = one(n); return err }, func() (err error) { p.Theirs, err = one(1); return err }))
			c.Pairs = append(c.Pairs, p)
		}
		r.Comparisons = append(r.Comparisons, c)
	}
}

// TestAgainstOneFlow measures the cost of a packet with one to 16 flows, with the same number of packets in
// all.
func TestAgainstOneFlow(t *testing.T) {
	b := newBed(t, "cmd/unifiedd")
	r := bench.NewReport("Flows of one worker", "several flows", "one flow")
	const rate = 160000
	r.Notes = []string{fmt.Sprintf("%d packets/s of 256 bytes in all, made by the flows, one worker that sleeps 200 µs when there is nothing to do; runs of %v; %s form.", rate, b.form.Span, b.form.Name)}
	counts := []int{4, 16}
	if b.form == bench.Short {
		counts = counts[:1]
	}
	ends := []struct{ what, to string }{
		{"flows to storage", "file: %s, segment: {size: 16MiB, keep: 1}, flush: 100ms"},
		{"flows to nowhere", "discard: true"},
	}
	if b.form == bench.Short {
		ends = ends[:1]
	}
	for _, e := range ends {
		what, to := e.what, e.to
		b.measure(r, growth{what, counts, 0, func(n int) (*daemon, func()) {
			text := "region: {size: 96MiB, extent: 512KiB, extents: 48}\nflows:\n"
			for i := range n {
				end := to
				if to != "discard: true" {
					end = fmt.Sprintf(to, filepath.Join(b.dir, fmt.Sprintf("%d-%d", n, i)))
				}
				text += fmt.Sprintf("  - {name: f%d, from: {generate: 256, rate: %d}, to: {%s}}\n", i, rate/n, end)
			}
			d := b.launch(&b.pair.B, text)
			return d, func() { b.must(d.stop()) }
		}})
	}
	b.must(r.Finish(b.Output(), b.form, b.TempDir(), "flow-growth"))
}

// TestAgainstOneQueuePair measures the cost of a message with one to 256 queue pairs, with the same number of
// messages in all.
func TestAgainstOneQueuePair(t *testing.T) {
	b := newBed(t, "cmd/unifiedd", "selftests/unified-flow-test")
	r := bench.NewReport("Queue pairs of one flow", "several clients", "one client")
	const rate = 10000
	r.Notes = []string{
		fmt.Sprintf("%d messages/s of 64 bytes in all, of clients to a flow that acknowledges and discards them, RoCE in software over veth; runs of %v; %s form.", rate, b.form.Span, b.form.Name),
		"Idle: one client sends all of them, and the others nothing.",
	}
	counts, kinds := []int{16, 256}, []bool{true, false}
	if b.form == bench.Short {
		counts, kinds = []int{4}, kinds[:1]
	}
	for _, idle := range kinds {
		what := "queue pairs"
		if idle {
			what += ", all but one idle"
		}
		b.measure(r, growth{what, counts, 0, func(n int) (*daemon, func()) {
			d := b.launch(&b.pair.B, fmt.Sprintf(`
region: {size: 96MiB}
flows:
  - name: sink
    from: {rdma: "roce:%s", listen: "%s:7471", window: 16, clients: 256}
    to: {discard: true}
`, b.pair.B.Ifname, b.pair.B.IP))
			c := b.clients(n, rate, idle)
			_, err := d.until("the clients", func(s *status) bool {
				taken, _ := s.packets()
				return s.Flows[0].Receives.Clients == uint64(n) && taken > 0
			})
			b.must(err)
			return d, func() {
				_ = c.Process.Kill()
				_ = c.Wait()
				b.must(d.stop())
			}
		}})
	}
	b.must(r.Finish(b.Output(), b.form, b.TempDir(), "flow-queue-pairs"))
}

// clients starts n clients in one process.
func (b *bed) clients(n, rate int, idle bool) *exec.Cmd {
	b.Helper()
	var args []string
	for i := range n {
		if i > 0 {
			args = append(args, "+")
		}
		each := rate / n
		if idle {
			each = 1
			if i == 0 {
				each = rate
			}
		}
		args = append(args, "append")
		if i == 0 {
			args = append(args, "-device", "roce:"+b.pair.A.Ifname, "-ordinary")
		}
		args = append(args, "-to", fmt.Sprintf("%s:7471", b.pair.B.IP), "-flow", "sink", "-size", "64", "-count", "1000000000",
			"-depth", "8", "-rate", strconv.Itoa(each), "-timeout", "10m")
	}
	c := b.pair.A.Command(b.program["unified-flow-test"], args...)
	said := new(bytes.Buffer)
	c.Stdout, c.Stderr = said, said
	b.must(c.Start())
	b.Cleanup(func() {
		if b.Failed() {
			_ = c.Process.Kill()
			_ = c.Wait()
			b.Logf("the clients: %s", said)
		}
	})
	return c
}
