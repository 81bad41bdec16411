package functions

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

//lab:program cmd/unifiedd

// container is a place with namespaces of its own, whose /sys and /proc have only what is in them.
type container struct{ *testenv.Namespace }

// given are the capabilities of a container, as docs/containers.md names them.
const given = "-all,+net_admin,+net_raw,+bpf,+perfmon,+ipc_lock"

// Command is exec.Command, with the program as process 1 of a container.
func (c container) Command(name string, args ...string) *exec.Cmd {
	inside := []string{"--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc",
		"sh", "-ec", `mount -t sysfs sysfs /sys; mount -t bpf bpf /sys/fs/bpf; exec "$@"`, "container",
		"setpriv", "--bounding-set", given, "--inh-caps", "-all", "--no-new-privs", name}
	return c.Namespace.Command("unshare", append(inside, args...)...)
}

// rig is a container with two virtual functions, and a host with another card on their wire.
type rig struct {
	*testenv.Pair
	inside      container
	card        labenv.Function // for RDMA
	dir, logs   string
	program     string
	daemon, wal *daemon.Daemon
}

// Addresses of the log's host and of the container's RDMA device.
const hostAt, insideAt = "10.77.1.1", "10.77.1.2"

// TestContainer: a daemon in a container captures from one VF, and by RDMA over another it sends messages to a log on
// another host. When the VFs are taken away under load, both flows fail and name their VFs. What came before is kept,
// each message is accounted for, every frame is free, and the daemon goes on.
func TestContainer(t *testing.T) {
	labenv.Guest(t)
	testenv.Long(t, "TestFunction and TestFunctionOfRDMA take VFs away, too")
	testenv.Leaks(t)
	testenv.HugePages(t, 66<<20)
	labenv.Modules(t, "veth")
	all := labenv.Functions(t, 2)
	labenv.FunctionForm.Instead(t)
	r := &rig{Pair: testenv.NewPair(t, testenv.PairOptions{NoAddresses: true}), card: all[1], dir: testenv.DiskDir(t), logs: testenv.DiskDir(t), program: labenv.Program(t, "unifiedd")}
	r.inside = container{r.B.Namespace}
	r.join(t)
	r.launch(t)
	end := r.load(t)
	d := r.daemon
	d.Until(t, "the load", func(s *status.Daemon) bool {
		return s.Flows[0].Packets > 200 && s.Flows[1].Sends.Peers[0].Acknowledged > 200
	})

	labenv.RemoveFunctions(t)
	s := d.Until(t, "the flows to fail", func(s *status.Daemon) bool {
		return s.Flows[0].State == status.Failed && s.Flows[1].State == status.Failed
	})
	end()
	testenv.MessageNames(t, s.Flows[0].Error, []string{r.B.Ifname, "interface is gone"})
	testenv.MessageNames(t, s.Flows[1].Error, []string{"roce:" + r.card.Name, "the device is gone"})
	r.captured(t, &s.Flows[0])
	r.logged(t, &s.Flows[1])
	d.Until(t, "all frames to be free", func(s *status.Daemon) bool { return s.Region.Owners["pool"] == s.Region.Frames })
	d.Kill()
}

// join moves the second VF into the container, and gives it and the other host addresses. Both are told of the other's
// hardware address: the card drops requests for it, which are shorter than Ethernet allows.
func (r *rig) join(t *testing.T) {
	t.Helper()
	r.card.Move(t, r.inside.Namespace)
	for _, e := range []struct {
		at             *testenv.Namespace
		name, own      string
		other, address string
	}{
		{r.A.Namespace, r.A.Ifname, hostAt, insideAt, r.card.MAC},
		{r.inside.Namespace, r.card.Name, insideAt, hostAt, r.A.MAC.String()},
	} {
		e.at.Run(t, "ip", "address", "add", e.own+"/24", "dev", e.name)
		e.at.Run(t, "ip", "link", "set", e.name, "up")
		e.at.Run(t, "ip", "neigh", "replace", e.other, "lladdr", e.address, "dev", e.name, "nud", "permanent")
	}
}

// launch starts a daemon with a log at the host, and the daemon in the container.
func (r *rig) launch(t *testing.T) {
	t.Helper()
	r.wal = daemon.Launch(t, r.program, r.A, r.logs, fmt.Sprintf(`
region: {size: 64MiB, pages: ordinary}
flows:
  - {name: wal, from: {rdma: "roce:%s", listen: "%s:7471", message: 1KiB, clients: 2}, to: {file: %s/wal, acknowledge: written, segment: {size: 16MiB}}}
`, r.A.Ifname, hostAt, r.logs))
	r.wal.Begun(t)
	r.daemon = daemon.Launch(t, r.program, r.inside, r.dir, fmt.Sprintf(`
region: {size: 64MiB}
flows:
  - {name: cap, from: {interface: %s, ring: 1024, filter: udp dst port 5000}, to: {file: %s/cap, segment: {size: 8MiB}, flush: 50ms, durable: 50ms}}
  - {name: feed, from: {generate: 300, rate: 500}, to: {rdma: "roce:%s", queue: 256, peers: [{name: log, address: "%s:7471", flow: wal}]}}
`, r.B.Ifname, r.dir, r.card.Name, hostAt))
	r.daemon.Running(t)
}

// load sends numbered packets to the VF that is captured, until end is called.
func (r *rig) load(t *testing.T) (end func()) {
	t.Helper()
	quit, done := make(chan struct{}), make(chan struct{})
	s := testenv.NewSender(t, &r.A)
	go func() {
		defer close(done)
		for n := uint64(0); ; n++ {
			_, _ = s.Send(testenv.UDP(&r.A, &r.B, 5000, n, 1000)) // a full queue is one more loss
			select {
			case <-quit:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	return func() { close(quit); <-done }
}

// captured checks that all packets that the flow received are in its files, whole and in order. The card may lose
// some of the load.
func (r *rig) captured(t *testing.T, s *status.Flow) {
	t.Helper()
	files, _ := filepath.Glob(r.dir + "/cap-*.pcapng")
	got, next := captures.Packets(t, files...), uint64(0)
	for i, p := range got {
		n, ok := testenv.Sequence(p)
		if !ok || n < next || !testenv.Intact(p) {
			t.Fatalf("packet %d has number %d, which should be %d or more", i, n, next)
		}
		next = n + 1
	}
	if uint64(len(got)) != s.Packets || s.Durable.Packets != s.Packets || s.Dropped["write_failed"] != 0 {
		t.Errorf("%d packets are in the files: %+v", len(got), s)
	}
}

// logged checks that each message of the flow was acknowledged or is counted as one that the peer did not get, and
// that the log has those that were acknowledged.
func (r *rig) logged(t *testing.T, s *status.Flow) {
	t.Helper()
	p := s.Sends.Peers[0]
	accounted := p.Acknowledged
	for _, n := range p.Dropped {
		accounted += n
	}
	if p.Offered != accounted || p.Waiting+p.InFlight != 0 {
		t.Errorf("the peer was offered %+v", p)
	}
	r.wal.Terminate(t)
	report, err := journal.Verify(r.logs + "/wal")
	if err != nil || !report.Intact() || report.Records < p.Acknowledged || report.Records > p.Offered {
		t.Errorf("the log has %d records, %d lost, of %d, of which %d were acknowledged: %v", report.Records, report.Lost, p.Offered, p.Acknowledged, err)
	}
}
