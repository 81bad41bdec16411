package crash

import (
	"crypto/sha256"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// relayed has a client and three logs at one end of a pair of namespaces, and a relay at the other end.
type relayed struct {
	*logKiller
	logs   *daemon.Daemon
	relays string // directory of the relay
}

// Addresses of a second link between the ends. The relay reaches the logs over it.
const logsAt, relayAt = "10.79.0.1", "10.79.0.2"

func newRelayed(t *testing.T) *relayed {
	t.Helper()
	testenv.Root(t)
	r := &relayed{logKiller: &logKiller{t: t, Pair: testenv.NewPair(t, testenv.PairOptions{}), dir: testenv.DiskDir(t)}, relays: t.TempDir()}
	r.A.Run(t, "ip", "link", "add", "logs", "type", "veth", "peer", "name", "logs", "netns", r.B.Name)
	for e, at := range map[*testenv.End]string{&r.A: logsAt, &r.B: relayAt} {
		e.Run(t, "ip", "address", "add", at+"/24", "dev", "logs")
		e.Run(t, "ip", "link", "set", "logs", "up")
	}
	var text strings.Builder
	text.WriteString("region: {size: 128MiB, pages: ordinary, extents: 24}\nflows:\n")
	for i, acknowledge := range []string{"durable", "durable", "durable", "written"} {
		fmt.Fprintf(&text, "  - {name: %c, from: {rdma: \"roce:logs\", listen: \"%s:%d\", clients: 2}, to: {file: %[4]s/%[1]c, acknowledge: %[5]s, segment: {size: 16MiB}}}\n",
			'a'+i, logsAt, 7471+i, r.dir, acknowledge)
	}
	r.logs = launch(t, &r.A, r.dir, text.String())
	r.logs.Running(t)
	return r
}

// relay starts the relay to the logs with those names.
func (r *relayed) relay(names, to string) *daemon.Daemon {
	r.t.Helper()
	var peers []string
	for _, n := range names {
		peers = append(peers, fmt.Sprintf("{name: %c, address: \"%s:%d\", flow: %[1]c}", n, logsAt, 7471+n-'a'))
	}
	return launch(r.t, &r.B, r.relays, fmt.Sprintf(`
region: {size: 64MiB, pages: ordinary}
flows:
  - name: replicate
    from: {rdma: "roce:%s", listen: "%s:7470", clients: 4}
    to: {rdma: "roce:logs", %s, peers: [%s]}
`, r.B.Ifname, r.B.IP, to, strings.Join(peers, ", ")))
}

// sends starts a client that sends count messages.
func (r *relayed) sends(count uint64) *daemon.Client {
	return r.flowTest("append", "-device", "roce:"+r.A.Ifname, "-ordinary", "-memory", fmt.Sprint(clientRegion), "-receive-ring", "512", "-to", r.B.IP.String()+":7470",
		"-count", fmt.Sprint(count), "-rate", fmt.Sprint(messageRate), "-size", "200", "-json", "-timeout", "2h")
}

// TestKillRelay: a relay to three logs is killed again and again while a client appends. At the end
// each log has every message once, all in the same order. The client learned the durability that
// the peers promise.
func TestKillRelay(t *testing.T) {
	testenv.Long(t, "TestKill kills a daemon that captures, and flows/stream tests the sessions of relays")
	kills := setting.Number(t, "UNIFIEDD_KILLS", few)
	r := newRelayed(t)
	const to = "acknowledge: most, durability: durable"
	d := r.relay("abc", to)
	d.Running(t)
	count := messagesPerLife * (kills + 1)
	c := r.sends(count)
	for hit := range kills {
		want := (hit + 1) * messagesPerLife * 3 / 4
		d.Until(t, "messages to be acknowledged", func(s *status.Daemon) bool {
			return len(s.Flows) == 1 && len(s.Flows[0].Receives.Clients) == 1 && s.Flows[0].Receives.Clients[0].Acknowledged >= want || c.Over()
		})
		if c.Over() {
			t.Fatalf("the client was done before kill %d: %s", hit, &c.Out)
		}
		d.Kill()
		d = r.relay("abc", to)
		d.Running(t)
	}
	c.Await(t, clientLimit)
	if said := c.Out.String(); !strings.Contains(said, `"durability":"durable"`) && !strings.Contains(said, `"durability": "durable"`) {
		t.Errorf("the client was told otherwise than that messages are durable: %s", said)
	}
	r.logs.Until(t, "all logs to have everything", func(s *status.Daemon) bool {
		for _, f := range s.Flows[:3] {
			if f.Log.Durable < count {
				return false
			}
		}
		return true
	})
	d.Terminate(t)
	r.logs.Terminate(t)
	sums := map[[32]byte]bool{}
	for _, name := range "abc" {
		file := filepath.Join(r.dir, string(name))
		r.flowTest("log", "-file", file, "-count", fmt.Sprint(count)).Await(t, clientLimit)
		raw, err := exec.Command(program, "log", "read", file, "--raw").Output()
		testenv.Must(t, err)
		sums[sha256.Sum256(raw)] = true
	}
	if len(sums) != 1 {
		t.Errorf("the logs differ: %d contents", len(sums))
	}
}

// TestRelayPromises: a relay that promises durable messages does not connect to a log that promises
// less, and reports it.
func TestRelayPromises(t *testing.T) {
	r := newRelayed(t)
	d := r.relay("d", "durability: durable")
	s := d.Until(t, "the peer to be refused", func(s *status.Daemon) bool {
		return len(s.Flows) == 1 && strings.Contains(s.Flows[0].Error, "promises")
	})
	if text := s.Flows[0].Error; !strings.Contains(text, "promises that messages are written when it acknowledges them, and here they must be durable: say acknowledge: durable there, or durability: written here") {
		t.Errorf("it says %q", text)
	}
	c := r.sends(1)
	time.Sleep(time.Second)
	if c.Over() {
		t.Errorf("a message that no log has is acknowledged: %s", &c.Out)
	}
	d.Kill()
}
