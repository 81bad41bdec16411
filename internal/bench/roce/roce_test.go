package roce

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// The processors of the ends.
const (
	serverCPU = 0
	clientCPU = 1
)

// The bars, for messages of barred bytes.
const (
	barred      = 64
	pingpongBar = 1.25 // of the median of xsk-pingpong
	sockperfBar = 0.6  // of the median of sockperf
	tailBar     = 1.0  // of its 99th percentile
)

// chunk is the bytes of a message in tests of bandwidth.
const chunk = 65536

// TestAgainstSockets compares with other programs that exchange or move bytes without a card.
func TestAgainstSockets(t *testing.T) {
	r := bench.Start(t, "roce", "RoCE on AF_XDP", "unified-rdma-test", "")
	r.Theirs = "xsk-pingpong, " + called(t, "sockperf") + ", " + called(t, "iperf3")
	testenv.HugePages(t, 256<<20)
	ours := testenv.Program(t, "selftests/unified-rdma-test")
	peer := testenv.Compile(t, bench.Path(t, "selftests/peers/xsk-peer/xsk-pingpong.c"), "-lxdp", "-lbpf", "-lm")
	wire, large := testenv.NewPair(t, testenv.PairOptions{MTU: linkMTU}), testenv.NewPair(t, testenv.PairOptions{MTU: linkMTU})
	for _, e := range []*testenv.End{&large.A, &large.B} { // the kernel passes packets over one pair and large segments over the other
		e.Run(t, "ethtool", "-K", e.Ifname, "tx", "on", "rx", "on", "tso", "on", "gso", "on", "gro", "on")
	}
	at := newPlace(t, wire)
	for _, size := range []int{barred, 4096} {
		bench.Compare(r, &latencyHere(at, size, r.Form, ours, peer).Contest)
	}
	bench.Compare(r, &bandwidthHere(at, newPlace(t, large), r.Form, ours).Contest)
	r.Finish(
		fmt.Sprintf("In turn, fresh processes for each run, the server on CPU %d and the client on CPU %d, over veth in copy mode, MTU %d, path MTU %d.", serverCPU, clientCPU, linkMTU, pathMTU),
		"Latency is half of a round trip, of ours and xsk-pingpong over some 100000, of sockperf over what it does in a second.",
		"The XDP program of unified-rdma-test is in front of the kernel's stack, that of xsk-pingpong in the driver, where veth has packets later.",
		"Bandwidth is of MB of 1048576 bytes; processor time is of all threads of both ends. unified-rdma-test spins, iperf3 sleeps while it waits.",
		"iperf3 has packets of a wire's size, as ours, and then segments of up to 64 KiB that no wire carries.")
}

// latencyHere compares the latency of messages of a size with other sockets.
func latencyHere(p place, size int, f bench.Form, path, peer string) *contest {
	bare, udp := &runner{program: pingpong(peer), place: p}, &runner{program: sockperf(), place: p}
	send, write := &runner{program: ours(path, "send"), place: p}, &runner{program: ours(path, "write"), place: p}
	c := newContest("latency of "+bytes(size), work{size: size, count: f.Share(100_000), seconds: max(1, int(f.Span.Seconds()))}, send, write, bare, udp)
	bars := [3]float64{pingpongBar, sockperfBar, tailBar}
	if size != barred {
		bars = [3]float64{}
	}
	for _, o := range []*runner{send, write} {
		c.duel(o, bare, typical, bars[0])
		c.duel(o, bare, tail, 0)
		c.duel(o, udp, typical, bars[1])
		c.duel(o, udp, tail, bars[2])
	}
	return c
}

// bandwidthHere compares the bandwidth with TCP, over a link that passes packets and one that passes large
// segments.
func bandwidthHere(wire, large place, f bench.Form, path string) *contest {
	packets, segments := &runner{program: iperf3(), place: wire}, &runner{program: iperf3(), place: large}
	segments.name += " with large segments"
	send, write := &runner{program: ours(path, "send"), place: wire}, &runner{program: ours(path, "write"), place: wire}
	c := newContest("bandwidth of "+bytes(chunk), work{size: chunk, count: f.Share(768<<20) / chunk, bandwidth: true}, send, write, packets, segments)
	for _, o := range []*runner{send, write} {
		for _, theirs := range []*runner{packets, segments} {
			c.duel(o, theirs, average, 0)
			c.duel(o, theirs, cost, 0)
		}
	}
	return c
}

func newPlace(t *testing.T, p *testenv.Pair) (at place) {
	of := func(e *testenv.End, cpu int) end {
		return end{netns: "/run/netns/" + e.Name, card: e.Ifname, device: "roce:" + e.Ifname, mac: e.MAC.String(), address: e.IP.String(), cpu: cpu}
	}
	at.pathMTU = pathMTU
	at.server, at.client = of(&p.B, serverCPU), of(&p.A, clientCPU)
	listens := func(protocol string, port int) (yes bool) {
		p.B.Do(t, func() { yes = bench.Listens(protocol, port) })
		return yes
	}
	at.serve = func(ctx context.Context, g *program, w work) (server, error) {
		p.A.AwaitNoProgram(t)
		p.B.AwaitNoProgram(t)
		return g.serveHere(ctx, at, w, listens)
	}
	return at
}

// called is the name and version that a program prints.
func called(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, name), "--version").Output()
	testenv.Mustf(t, err, "ask %s for its version", name)
	line, _, _ := strings.Cut(string(out), "\n")
	line, _, _ = strings.Cut(line, " (")
	return strings.Replace(line, ", version", "", 1)
}
