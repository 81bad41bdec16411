package attach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// barRemote is how much longer a message of a channel may take to another machine than a bare WRITE.
const barRemote = 1.1

// machines is two hosts with two links: the daemons have one, and unified-rdma-test the other.
type machines struct {
	*bench.Report
	link, bare         *testenv.Pair
	flowTest, rdmaTest string
	dirA, dirB         string
	count              int
}

func newMachines(r *bench.Report, count int) *machines {
	r.Helper()
	return &machines{
		Report: r, link: testenv.NewPair(r, testenv.PairOptions{}), bare: testenv.NewPair(r, testenv.PairOptions{}),
		flowTest: testenv.Program(r, "selftests/unified-flow-test"), rdmaTest: testenv.Program(r, "selftests/unified-rdma-test"),
		dirA: r.TempDir(), dirB: r.TempDir(), count: r.Form.Share(count),
	}
}

// TestAgainstWrite compares a channel between two machines with a bare WRITE over the same provider: a message to the
// other side and back.
func TestAgainstWrite(t *testing.T) {
	m := newMachines(bench.Start(t, "remote", "Remote channels", "a channel to another machine", "a WRITE"), 20_000)
	m.launch()
	for _, size := range []int{64, 256, 1024, 4000} {
		bench.Compare(m.Report, &bench.Contest[oneWay]{Name: fmt.Sprintf("%d B", size), Programs: []bench.Run[oneWay]{
			func(ctx context.Context) (oneWay, error) { return m.channel(ctx, size) },
			func(ctx context.Context) (oneWay, error) { return m.bareLatency(ctx, "write", size) },
		}, Measures: measures("", 1, barRemote, 0)})
	}
	m.Finish(
		fmt.Sprintf("In turn, fresh processes for each run of %d round trips. Half of the time of a message to the other side and back, over RoCE in software on a veth pair.", m.count),
		"The channel has four processes: two programs, which sleep while they wait, and two daemons. The WRITE has two, unified-rdma-test.")
}

// configure returns the configuration of a side.
func configure(dir string, own, peer *testenv.End, program, writes, reads, listen, connect string) string {
	return fmt.Sprintf(`
region: {size: 64MiB, pages: ordinary}
workers: [{name: main}]
attach:
  socket: %s/attach.sock
  programs: [{name: %s, user: "%d"}]
  channels:
    - {name: %s, writer: %[2]s, slots: 64, slot: 4160}
    - {name: %[5]s, slots: 64, slot: 4160, readers: [{program: %[2]s, policy: wait}]}
flows:
  - {name: out, from: {channel: %[4]s}, to: {rdma: "roce:%[6]s", peers: [{name: other, address: "%[7]s:%[9]s", flow: in, policy: wait}]}}
  - {name: in, from: {rdma: "roce:%[6]s", listen: "%[8]s:%[10]s"}, to: {channel: %[5]s}}
`, dir, program, os.Getuid(), writes, reads, own.Ifname, peer.IP, own.IP, connect, listen)
}

// launch starts the daemons, and waits until their flows run.
func (m *machines) launch() {
	m.Helper()
	unifiedd := testenv.Program(m, "cmd/unifiedd")
	a, b := &m.link.A, &m.link.B
	for _, d := range []*daemon.Daemon{
		daemon.Launch(m.T, unifiedd, a, m.dirA, configure(m.dirA, a, b, "ping", "there", "back", "7472", "7471")),
		daemon.Launch(m.T, unifiedd, b, m.dirB, configure(m.dirB, b, a, "pong", "back", "there", "7471", "7472")),
	} {
		d.Until(m.T, "the flows to run", func(s *status.Daemon) bool { return len(s.Flows) == 2 && s.Flows[1].State == "running" })
	}
}

// channel measures two programs on two machines with a channel in each direction.
func (m *machines) channel(ctx context.Context, size int) (s oneWay, err error) {
	args := func(dir, as, writes, reads string, more ...string) []string {
		return append([]string{m.flowTest, "channel", "-socket", filepath.Join(dir, "attach.sock"), "-as", as, "-writes", writes, "-reads", reads,
			"-count", fmt.Sprint(m.count), "-size", fmt.Sprint(size)}, more...)
	}
	out, err := both(pinned(ctx, 0, args(m.dirA, "ping", "there", "back", "-json")...), pinned(ctx, 1, args(m.dirB, "pong", "back", "there", "-echo")...))
	if err != nil {
		return s, fmt.Errorf("the channel: %w", err)
	}
	return latencyOf(out)
}

// rdmaTestPort is the port of unified-rdma-test.
const rdmaTestPort = 18516

// bareLatency measures an operation between two machines.
func (m *machines) bareLatency(ctx context.Context, operation string, size int) (s oneWay, err error) {
	server := m.bare.B.Command(m.rdmaTest, m.bare.B.Ifname, "roce:"+m.bare.B.Ifname, "-", "server", "-reserve")
	said := new(daemon.Log)
	server.Stderr = said
	if err := server.Start(); err != nil {
		return s, err
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	listens := func() (yes bool) {
		m.bare.B.Do(m.T, func() { yes = bench.Listens("tcp", rdmaTestPort) })
		return yes
	}
	if err := bench.AwaitServer(ctx, listens, ended); err != nil {
		return s, fmt.Errorf("%w: %s", err, said)
	}
	out, err := m.bare.A.Command(m.rdmaTest, m.bare.A.Ifname, "roce:"+m.bare.A.Ifname, "-", m.bare.B.IP.String(), "-test", "latency", "-op", operation,
		"-size", fmt.Sprint(size), "-n", fmt.Sprint(m.count), "-json", "-reserve").Output()
	if err != nil {
		_ = server.Process.Kill() // it waits for the client
		return s, errors.Join(fmt.Errorf("unified-rdma-test: %w", err), <-ended)
	}
	var r struct {
		Latency struct {
			Typical float64 `json:"t_typical_usec"`
			P99     float64 `json:"percentile_99_usec"`
		}
	}
	if err := json.Unmarshal(out, &r); err != nil || r.Latency.Typical == 0 {
		return s, fmt.Errorf("unified-rdma-test says: %s (%v)", out, err)
	}
	return oneWay{1000 * r.Latency.Typical, 1000 * r.Latency.P99}, <-ended
}
