package flow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/latency"
)

// replicated is the result of one run with a number of peers.
type replicated struct {
	rate     float64 // messages per second that all peers have
	p50, p99 float64 // from sending one until its acknowledgement, in microseconds
	relay    float64 // processor time of the relay for a message, in nanoseconds
}

// TestAgainstOnePeer measures the cost of having each message at one, two and three peers before it is
// acknowledged. Relay, peers and client are separate processes. The peers are flows of one daemon.
func TestAgainstOnePeer(t *testing.T) {
	b := newBed(t, "cmd/unifiedd", "selftests/unified-flow-test")
	b.addSide()
	r := bench.NewReport("Replication", "several peers", "one peer")
	r.Notes = []string{
		fmt.Sprintf("A client sends messages to a relay, which sends each to all peers from the frame that it landed in, and acknowledges it when all have it; RoCE in software over veth; runs of %v; %s form.", b.form.Span, b.form.Name),
		"Relay and peers wait for their devices, the client naps for 50 µs when nothing has come for that long. All share the machine's processors. Processor: of the relay's process.",
	}
	type work struct{ size, depth, peers int }
	works := []work{{512, 32, 2}}
	if b.form != bench.Short {
		works = nil
		for _, size := range []int{512, 4096} {
			for _, depth := range []int{1, 32} {
				works = append(works, work{size, depth, 2}, work{size, depth, 3})
			}
		}
	}
	for _, w := range works {
		if name := fmt.Sprintf("%d peers, %d bytes, depth %d", w.peers, w.size, w.depth); b.cases.MatchString(name) {
			r.Comparisons = append(r.Comparisons, b.replicate(name, w.size, w.depth, w.peers)...)
		}
	}
	b.must(r.Finish(b.Output(), b.form, b.TempDir(), "flow-replication"))
}

// The pair between client and relay, in addition to the one between relay and peers.
const (
	clientSide, relaySide       = "side0", "side1"
	clientAddress, relayAddress = "10.78.0.1", "10.78.0.2"
)

// addSide joins the two namespaces by a second pair, since each process has a device of its own.
func (b *bed) addSide() {
	b.Helper()
	near, far := &b.pair.A, &b.pair.B
	near.Run(b, "ip", "link", "add", clientSide, "type", "veth", "peer", "name", relaySide, "netns", far.Name)
	near.Run(b, "ip", "address", "add", clientAddress+"/24", "dev", clientSide)
	far.Run(b, "ip", "address", "add", relayAddress+"/24", "dev", relaySide)
	near.Run(b, "ip", "link", "set", clientSide, "up")
	far.Run(b, "ip", "link", "set", relaySide, "up")
}

// replicate compares a number of peers with one, alternately.
func (b *bed) replicate(name string, size, depth, peers int) (all []bench.Comparison) {
	b.Helper()
	var ours, theirs []replicated
	for i := range min(b.form.Rounds, 5) {
		run := func(peers int, to *[]replicated) func() error {
			return func() error {
				s, err := b.relayed(size, depth, peers)
				*to = append(*to, s)
				return err
			}
		}
		b.must(bench.Round(i, run(peers, &ours), run(1, &theirs)))
	}
	for _, m := range []struct {
		name, unit string
		better     bench.Direction
		of         func(replicated) float64
	}{
		{"messages", "k/s", bench.More, func(s replicated) float64 { return s.rate / 1e3 }},
		{"latency, median", "µs", bench.Less, func(s replicated) float64 { return s.p50 }},
		{"latency, 99%", "µs", bench.Less, func(s replicated) float64 { return s.p99 }},
		{"processor", "ns/message", bench.Less, func(s replicated) float64 { return s.relay }},
	} {
		c := bench.Comparison{Case: name, Metric: m.name, Unit: m.unit, Better: m.better}
		for i := range ours {
			c.Pairs = append(c.Pairs, bench.Pair{Ours: m.of(ours[i]), Theirs: m.of(theirs[i])})
		}
		all = append(all, c)
	}
	return all
}

// relayed runs a client that sends through a relay to some peers for a while.
func (b *bed) relayed(size, depth, peers int) (s replicated, err error) {
	b.Helper()
	sinks := b.launch(&b.pair.A, b.sinks(size, peers))
	relay := b.launch(&b.pair.B, b.relay(size, peers))
	_, err = relay.until("the peers", func(s *status) bool {
		for _, p := range s.Flows[0].Sends.Peers {
			if p.State != "connected" {
				return false
			}
		}
		return true
	})
	if err == nil {
		s, err = b.load(relay, size, depth)
	}
	return s, errors.Join(err, relay.stop(), sinks.stop())
}

// common is the configuration that relay and peers share. Messages that do not fit a frame go into extents.
const common = "region: {size: 96MiB, extent: 256KiB, extents: 192}\nworkers: [{name: main}]\nflows:\n"

// sinks is the configuration of peers that discard the messages.
func (b *bed) sinks(size, peers int) string {
	var text strings.Builder
	text.WriteString(common)
	for i := range peers {
		fmt.Fprintf(&text, "  - {name: p%d, from: {rdma: \"roce:%s\", listen: \"%s:%d\", clients: 1, message: %d}, to: {discard: true}}\n",
			i, b.pair.A.Ifname, b.pair.A.IP, 7471+i, size)
	}
	return text.String()
}

// relay is the configuration of the daemon that sends to them.
func (b *bed) relay(size, peers int) string {
	var text strings.Builder
	fmt.Fprintf(&text, common+`
  - name: relay
    from: {rdma: "roce:%s", listen: "%s:7470", clients: 1, message: %d}
    to:
      rdma: "roce:%s"
      acknowledge: all
      peers:
`, relaySide, relayAddress, size, b.pair.B.Ifname)
	for i := range peers {
		fmt.Fprintf(&text, "        - {name: p%d, address: \"%s:%d\", flow: p%[1]d}\n", i, b.pair.A.IP, 7471+i)
	}
	return text.String()
}

// load sends through a relay for the form's span, and measures the relay's processor time.
func (b *bed) load(relay *daemon, size, depth int) (s replicated, err error) {
	b.Helper()
	// The client goes on while the relay is measured, also if a busy machine reads its status late.
	warm, late := b.form.Span/4, time.Second
	c := b.pair.A.Command(b.program["unified-flow-test"], "load", "-json", "-device", "roce:"+clientSide, "-ordinary", "-to", relayAddress+":7470", "-flow", "relay",
		"-size", fmt.Sprint(size), "-depth", fmt.Sprint(depth), "-warm", (2 * warm).String(), "-for", (2*b.form.Span + late).String(), "-timeout", "2m")
	var out, said bytes.Buffer
	c.Stdout, c.Stderr = &out, &said
	if err := c.Start(); err != nil {
		return s, err
	}
	b.Cleanup(func() { _ = c.Process.Kill() })
	if _, err = relay.until("messages", func(s *status) bool { taken, _ := s.packets(); return taken > 0 }); err == nil {
		time.Sleep(warm)
		s.relay, _, err = relay.cost(b.form.Span)
	}
	if end := c.Wait(); end != nil {
		return s, errors.Join(err, fmt.Errorf("the client: %w: %s", end, said.String()))
	}
	return s, errors.Join(err, s.read(out.Bytes()))
}

// read parses the client's final output.
func (s *replicated) read(out []byte) error {
	var r struct {
		Messages, Seconds float64
		Latency           *latency.Summary `json:"latency_ns"`
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return fmt.Errorf("the client printed %q: %w", out, err)
	}
	if r.Messages < 1 || r.Seconds <= 0 || r.Latency == nil {
		return fmt.Errorf("the client measured nothing: %s", out)
	}
	s.rate, s.p50, s.p99 = r.Messages/r.Seconds, float64(r.Latency.P50)/1e3, float64(r.Latency.P99)/1e3
	return nil
}
