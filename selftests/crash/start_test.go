package crash

import (
	"fmt"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// refused runs a daemon with a configuration that it must refuse. Its message must contain all texts.
func refused(t *testing.T, e *testenv.End, dir, text string, says ...string) {
	t.Helper()
	d := launch(t, e, dir, text)
	d.Wait(t)
	if d.Err == nil {
		t.Errorf("it ended well\n%s", d.Log)
	}
	for _, one := range says {
		if !strings.Contains(d.Log.String(), one) {
			t.Errorf("the message does not say %q:\n%s", one, d.Log)
		}
	}
	if strings.Contains(d.Log.String(), "goroutine ") {
		t.Errorf("it crashed:\n%s", d.Log)
	}
}

// TestRefused: the daemon refuses wrong configurations and names each mistake.
func TestRefused(t *testing.T) {
	testenv.Root(t)
	testenv.HugePages(t, 66<<20)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	dir := testenv.DiskDir(t)
	flow := func(from, to string) string {
		return fmt.Sprintf("region: {size: 64MiB, extent: 512KiB, extents: 16}\nflows: [{name: cap, from: {%s}, to: {%s}}]\n", from, to)
	}
	good := "file: " + dir + "/cap, segment: {size: 4MiB}"
	t.Run("several mistakes", func(t *testing.T) {
		refused(t, &p.B, dir, flow("interface: a/b, filter: udp prot 5, ring: 1000", "file: relative, flush: 1h"),
			"interface", "filter", "1000", "relative", "1h", "unifiedd.yaml:3")
	})
	t.Run("huge pages exhausted", func(t *testing.T) {
		refused(t, &p.B, dir, "region: {size: 1TiB}\nflows: [{name: cap, from: {interface: lo}, to: {"+good+"}}]\n",
			"huge pages", "on ordinary pages the region takes", "make it smaller")
	})
	t.Run("no interface", func(t *testing.T) {
		refused(t, &p.B, dir, flow("interface: nowhere0", good), "start flow cap", "nowhere0", "ip link")
	})
	t.Run("no directory", func(t *testing.T) {
		refused(t, &p.B, dir, flow("interface: "+p.B.Ifname, "file: /proc/none/cap"), "to.file", "segments cannot be files in /proc/")
	})
	t.Run("socket in no directory", func(t *testing.T) {
		text := strings.Replace(flow("interface: "+p.B.Ifname, good), "region:", "metrics: {listen: '127.0.0.1:999999'}\nregion:", 1)
		refused(t, &p.B, dir, text, "metrics.listen", "999999")
	})
}

// TestSecondDaemon: a daemon that is started beside a running one with the same control socket
// names the socket and exits. The first one continues.
func TestSecondDaemon(t *testing.T) {
	testenv.Root(t)
	testenv.HugePages(t, 132<<20)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	dir := testenv.DiskDir(t)
	text := fmt.Sprintf("region: {size: 64MiB, extent: 512KiB, extents: 16}\nflows: [{name: cap, from: {interface: %s}, to: {file: %s/cap, segment: {size: 4MiB}, flush: 10ms, durable: 20ms}}]\n", p.B.Ifname, dir)
	first := launch(t, &p.B, dir, text)
	first.Running(t)
	refused(t, &p.B, dir, text, "control socket "+first.Socket, "another unifiedd answers there", "control.socket")
	testenv.SendRaw(t, &p.A, testenv.Stream(&p.A, &p.B, 5000, 0, 100, 200), testenv.SendOptions{})
	first.Until(t, "100 packets", func(s *status.Daemon) bool { return s.Flows[0].Durable.Packets == 100 })
	first.Terminate(t)
}

// TestRestartFlow: a flow that failed to start with the daemon can be started later by command.
func TestRestartFlow(t *testing.T) {
	testenv.Root(t)
	testenv.HugePages(t, 66<<20)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	dir := testenv.DiskDir(t)
	d := launch(t, &p.B, dir, fmt.Sprintf(`
region: {size: 64MiB, extent: 512KiB, extents: 16}
flows:
  - {name: good, from: {interface: lo, ring: 1024}, to: {file: %[1]s/good, segment: {size: 4MiB}}}
  - {name: late, from: {interface: late0, ring: 1024}, to: {file: %[1]s/late, segment: {size: 4MiB}}}
`, dir))
	s := d.Until(t, "one flow to fail", func(s *status.Daemon) bool {
		return s.Flows[0].State == status.Running && s.Flows[1].State == status.Failed
	})
	if !strings.Contains(s.Flows[1].Error, "late0") {
		t.Errorf("why: %q", s.Flows[1].Error)
	}
	if said, err := d.Control("start", "late"); err == nil || !strings.Contains(said, "late0") {
		t.Errorf("start it again: %v: %s", err, said)
	}
	p.B.SetDown(t)
	p.B.Rename(t, "late0")
	p.B.SetUp(t)
	for _, args := range [][]string{{"start", "late"}, {"stop", "good"}, {"start", "good"}} {
		if said, err := d.Control(args...); err != nil {
			t.Errorf("%v: %v: %s", args, err, said)
		}
		d.Until(t, "the flows to be so", func(s *status.Daemon) bool {
			return (s.Flows[0].State == status.Running) == (args[0] == "start") && s.Flows[1].State == status.Running
		})
	}
	d.Terminate(t)
}
