package flow

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// TestAgainstIdle measures what a daemon costs while nothing happens, in percent of a processor.
func TestAgainstIdle(t *testing.T) {
	r := bench.Start(t, "idle", "Idle daemons", "a daemon", "nothing")
	pair, dir := testenv.NewPair(t, testenv.PairOptions{}), testenv.DiskDir(t)
	links := moreLinks(t, pair, 5)
	for _, name := range []string{"image", "disk"} {
		testenv.Must(t, os.WriteFile(filepath.Join(dir, name), make([]byte, 16<<20), 0o600))
	}
	capture := func(name, iface, port, more string) string {
		return fmt.Sprintf("  - {name: %s, from: {interface: %s, filter: udp dst port %s%s}, to: {file: %s/%[1]s, segment: {size: 8MiB}, prepare: none}}\n", name, iface, port, more, dir)
	}
	taken, copied := capture("taken", links[0], "5000", ", ring: 128"), capture("copied", links[1], "5000", ", engine: packet, buffer: 2MiB")
	rdma := fmt.Sprintf(`"roce:%s", listen: "%s`, pair.B.Ifname, pair.B.IP)
	log := fmt.Sprintf("  - {name: log, from: {rdma: %s:7471\", clients: 2, window: 16}, to: {file: %s/log, segment: {size: 8MiB}}}\n", rdma, dir)
	blocks := fmt.Sprintf("  - {name: blocks, from: {file: %s/image}, to: {rdma: %s:7472\", clients: 2, cache: 2MiB}}\n", dir, rdma)
	nvme := fmt.Sprintf("  - {name: nvme, from: {file: %s/disk}, to: {rdma: %s:4420\", subsystem: nqn.2026-11.net.example:idle, allow_any_host: true}}\n", dir, rdma)
	slow := fmt.Sprintf("  - {name: slow, from: {generate: 64, rate: 1}, to: {file: %s/slow, segment: {size: 8MiB}, prepare: none}}\n", dir)
	others := rest(dir, links[2:], rdma, fmt.Sprintf("{name: log, address: \"%s:7471\", flow: log}", pair.B.IP))
	var fifty strings.Builder
	for i := range 50 {
		fifty.WriteString(capture(fmt.Sprint("c", i), links[i%len(links)], fmt.Sprint(6000+i), ", ring: 128"))
	}
	for _, one := range []struct{ name, flows, parts string }{
		{name: "a capture by AF_XDP", flows: taken}, {name: "a capture by packet socket", flows: copied}, {name: "a log", flows: log}, {name: "blocks", flows: blocks}, {name: "an NVMe target", flows: nvme},
		{name: "a generator of one packet a second", flows: slow}, {name: "these six", flows: taken + copied + log + blocks + nvme + slow},
		{name: "these and one of each other kind", flows: taken + copied + log + blocks + nvme + slow + others, parts: parts}, {name: "50 captures by AF_XDP", flows: fifty.String()},
	} {
		d := daemon.Launch(t, testenv.Program(t, "cmd/unifiedd"), &pair.B, t.TempDir(), "region: {size: 2GiB, extent: 256KiB, pages: ordinary}\n"+one.parts+"flows:\n"+one.flows)
		d.Running(t)
		s, err := d.Status()
		testenv.Must(t, err)
		time.Sleep(2 * r.Form.Span) // what opening has caused
		began, before := time.Now(), spent(t, s.PID)
		time.Sleep(20 * r.Form.Span)
		t.Logf("%-36s %.2f %% of a processor", one.name, 100*float64(spent(t, s.PID)-before)/float64(time.Since(began)))
		d.Terminate(t)
	}
}

// parts are what the flows of rest share.
const parts = `attach:
  programs: [{name: p, user: root, in: 8MiB, out: 8MiB}]
  channels: [{name: c, readers: [{program: p}]}]
  states: [{name: s1, keys: 1, readers: [p]}, {name: s2, keys: 1, readers: [p]}]
`

// rest returns a flow of each other kind that waits for something: replays and generators do not, a group needs daemons, and an
// order flow a queue for itself.
func rest(dir string, links []string, rdma, peer string) string {
	device, _, _ := strings.Cut(rdma, ",")
	to := fmt.Sprintf("{rdma: %s, peers: [%s]}", device, peer)
	var all strings.Builder
	for name, flow := range map[string]string{
		"network-rdma":   "from: {interface: " + links[0] + ", filter: udp, ring: 128}, to: " + to,
		"network-null":   "from: {interface: " + links[1] + ", filter: udp, ring: 128}, to: {discard: true}",
		"network-attach": "from: {interface: " + links[2] + ", filter: udp, ring: 128}, to: {attach: p}",
		"rdma-rdma":      "from: {rdma: " + rdma + ":7473\", clients: 1, window: 16}, to: " + to,
		"rdma-null":      "from: {rdma: " + rdma + ":7474\", clients: 1, window: 16}, to: {discard: true}",
		"rdma-attach":    "from: {rdma: " + rdma + ":7475\", clients: 1, window: 16}, to: {attach: p}",
		"rdma-state":     "from: {rdma: " + rdma + ":7476\", clients: 1, window: 16}, to: {state: s2}",
		"rdma-channel":   "from: {rdma: " + rdma + ":7477\"}, to: {channel: c}",
		"storage-attach": "from: {file: " + dir + "/image}, to: {attach: p}",
		"attach-storage": "from: {attach: p}, to: {file: " + dir + "/said, segment: {size: 8MiB}}",
		"attach-rdma":    "from: {attach: p}, to: " + to,
		"attach-null":    "from: {attach: p}, to: {discard: true}",
		"attach-state":   "from: {attach: p}, to: {state: s1}",
	} {
		fmt.Fprintf(&all, "  - {name: %s, %s}\n", name, flow)
	}
	return all.String()
}

// moreLinks makes pairs of interfaces between the ends of a pair, and returns the names of those at end B.
func moreLinks(t *testing.T, pair *testenv.Pair, n int) (names []string) {
	t.Helper()
	for i := range n {
		near, far := fmt.Sprintf("%s-%d", pair.A.Ifname, i), fmt.Sprintf("%s-%d", pair.B.Ifname, i)
		pair.A.Run(t, "ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", pair.B.Name)
		pair.A.Run(t, "ip", "link", "set", near, "up")
		pair.B.Run(t, "ip", "link", "set", far, "up")
		names = append(names, far)
	}
	return names
}

// spent returns how long the threads of a process have run.
func spent(t *testing.T, pid int) (sum time.Duration) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("process %d has no schedstat: %v", pid, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		testenv.Must(t, err)
		first, _, _ := strings.Cut(string(text), " ")
		ns, err := strconv.ParseInt(first, 10, 64)
		testenv.Must(t, err)
		sum += time.Duration(ns)
	}
	return sum
}
