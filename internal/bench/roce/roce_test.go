package roce

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
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

// TestAgainstSockets compares in the form that UNIFIEDD_BENCH names and leaves table, JSON and plot in
// build/bench. The table shows a missed bar; the test does not fail, since on a busy machine the cause may be
// other load.
func TestAgainstSockets(t *testing.T) {
	b := newBed(t)
	form, err := bench.WantedForm()
	if err != nil {
		t.Fatal(err)
	}
	r := bench.NewReport("RoCE on AF_XDP", "unified-rdma-test", "xsk-pingpong (libxdp "+libxdpVersion(t)+"), "+called(t, "sockperf")+", "+called(t, "iperf3"))
	r.NoteLoad("before")
	for _, c := range b.contests(form) {
		r.Comparisons = append(r.Comparisons, run(t, c, form.Rounds)...)
	}
	r.NoteLoad("after")
	r.Notes = append(r.Notes,
		fmt.Sprintf("%d rounds, in turn, fresh processes for each run, the server on CPU %d and the client on CPU %d, over veth in copy mode, MTU %d, path MTU %d; %s form.",
			form.Rounds, serverCPU, clientCPU, linkMTU, pathMTU, form.Name),
		"Latency is half of a round trip, of ours and xsk-pingpong over some 100000, of sockperf over what it does in a second.",
		"The XDP program of unified-rdma-test is in front of the kernel's stack, that of xsk-pingpong in the driver, where veth has packets later.",
		"Bandwidth is of MB of 1048576 bytes; processor time is of all threads of both ends. unified-rdma-test spins, iperf3 sleeps while it waits.",
		"iperf3 has packets of a wire's size, as ours, and then segments of up to 64 KiB that no wire carries.")
	if err := r.Finish(b.Output(), form, b.TempDir(), "roce"); err != nil {
		b.Error(err)
	}
}

// bed is the machinery of the comparison: programs and two veth pairs. The kernel passes packets
// over one pair and large segments over the other.
type bed struct {
	*testing.T
	wire, large place
	ours        string // path of unified-rdma-test
	pingpong    string
}

func newBed(t *testing.T) *bed {
	testenv.Root(t)
	if runtime.NumCPU() < 2 {
		t.Fatal("the two ends need a CPU each")
	}
	testenv.HugePages(t, 256<<20)
	b := &bed{T: t, ours: testenv.Build(t, "selftests/unified-rdma-test"),
		pingpong: testenv.Compile(t, "../../../selftests/peers/xsk-peer/xsk-pingpong.c", "-lxdp", "-lbpf", "-lm")}
	b.wire = newPlace(t, testenv.NewPair(t, testenv.PairOptions{MTU: linkMTU}))
	large := testenv.NewPair(t, testenv.PairOptions{MTU: linkMTU})
	for _, e := range []*testenv.End{&large.A, &large.B} {
		e.Run(t, "ethtool", "-K", e.Ifname, "tx", "on", "rx", "on", "tso", "on", "gso", "on", "gro", "on")
	}
	b.large = newPlace(t, large)
	return b
}

func newPlace(t *testing.T, p *testenv.Pair) (at place) {
	of := func(e *testenv.End, cpu int) end {
		return end{netns: "/run/netns/" + e.Name, card: e.Ifname, mac: e.MAC.String(), address: e.IP.String(), cpu: cpu}
	}
	at.server, at.client = of(&p.B, serverCPU), of(&p.A, clientCPU)
	listens := func(protocol string, port int) (yes bool) {
		p.B.Do(t, func() { yes = bench.Listens(protocol, port) })
		return yes
	}
	at.serve = func(ctx context.Context, g *program, w work) (server, error) {
		p.A.AwaitNoProgram(t)
		p.B.AwaitNoProgram(t)
		return g.serve(ctx, at, w, listens)
	}
	return at
}

// contests are the cases; the short form has one of each kind.
func (b *bed) contests(form bench.Form) (all []*contest) {
	b.Helper()
	wanted, err := bench.WantedCases()
	if err != nil {
		b.Fatal(err)
	}
	for _, size := range []int{barred, 4096} {
		if wanted.MatchString("latency of "+bytes(size)) && (form != bench.Short || size == barred) {
			all = append(all, latencyHere(b.wire, size, form, b.ours, b.pingpong))
		}
	}
	if wanted.MatchString("bandwidth of " + bytes(chunk)) {
		all = append(all, bandwidthHere(b.wire, b.large, form, b.ours))
	}
	if len(all) == 0 {
		b.Fatalf("%s=%s: there is no such case", bench.CasesVariable, wanted)
	}
	return all
}

// run measures a contest.
func run(t *testing.T, c *contest, rounds int) []bench.Comparison {
	t.Helper()
	if rounds > 1 { // once shows that everything works
		if err := c.calibrate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	c.prepare()
	if err := c.rounds.Rounds(t.Context(), rounds); err != nil {
		t.Fatal(err)
	}
	return c.rounds.Comparisons()
}

func libxdpVersion(t *testing.T) string {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, "pkg-config"), "--modversion", "libxdp").Output()
	if err != nil {
		t.Fatalf("ask for the version of libxdp: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// called is the name and version that a program prints.
func called(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, name), "--version").Output()
	if err != nil {
		t.Fatalf("ask %s for its version: %v", name, err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	line, _, _ = strings.Cut(line, " (")
	return strings.Replace(line, ", version", "", 1)
}
