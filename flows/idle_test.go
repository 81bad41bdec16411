package flows

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestIdleDaemonRests: the workers of a daemon with a flow of each kind hardly wake while nothing happens.
func TestIdleDaemonRests(t *testing.T) {
	l := newLab(t, testenv.PairOptions{})
	for _, name := range []string{"image", "disk"} {
		testenv.Must(t, os.WriteFile(filepath.Join(l.dir, name), make([]byte, 8<<20), 0o600))
	}
	other := l.addPair(t)[1].Ifname // RoCE takes its interface for itself
	d := l.start(t, fmt.Sprintf(`
region: {size: 128MiB, extent: 256KiB, pages: ordinary}
workers: [{name: captures}, {name: main}]
attach:
  socket: %[2]s/attach.sock
  programs: [{name: writer, user: "%[5]d", out: 2MiB}, {name: reader, user: "%[5]d", in: 2MiB}]
  channels: [{name: book, readers: [{program: reader, policy: wait}], slots: 64, slot: 128}]
flows:
  - {name: taken, worker: captures, from: {interface: %[4]s, filter: udp dst port 5000, ring: 512}, to: {file: %[2]s/taken, segment: {size: 8MiB}, prepare: none}}
  - {name: copied, worker: captures, from: {interface: %[4]s, filter: udp dst port 5000, engine: packet, buffer: 2MiB}, to: {file: %[2]s/copied, segment: {size: 8MiB}, prepare: none}}
  - {name: counted, worker: captures, from: {interface: %[4]s, filter: udp dst port 5001, ring: 512}, to: {discard: true}}
  - {name: slow, worker: captures, from: {generate: 64, rate: 1}, to: {discard: true}}
  - {name: log, worker: main, from: {rdma: "roce:%[1]s", listen: "%[3]s:7471", clients: 2, window: 16}, to: {file: %[2]s/log, segment: {size: 8MiB}}}
  - {name: blocks, worker: main, from: {file: %[2]s/image}, to: {rdma: "roce:%[1]s", listen: "%[3]s:7472", clients: 2, cache: 2MiB}}
  - {name: nvme, worker: main, from: {file: %[2]s/disk}, to: {rdma: "roce:%[1]s", listen: "%[3]s:4420", subsystem: nqn.2026-11.net.example:idle, allow_any_host: true}}
  - {name: appends, worker: main, from: {attach: writer}, to: {file: %[2]s/appends, segment: {size: 8MiB}}}
  - {name: given, worker: main, from: {rdma: "roce:%[1]s", listen: "%[3]s:7475", clients: 2, window: 16}, to: {attach: reader}}
  - {name: counts, worker: main, from: {rdma: "roce:%[1]s", listen: "%[3]s:7473", clients: 2, window: 16}, to: {discard: true}}
  - {name: ring, worker: main, from: {rdma: "roce:%[1]s", listen: "%[3]s:7474"}, to: {channel: book}}
`, l.B.Ifname, l.dir, l.B.IP, other, os.Getuid()), Options{})
	time.Sleep(2 * time.Second) // what opening has caused
	// A worker that naps 200us makes thousands.
	before := d.Status().Workers
	const span = 4
	time.Sleep(span * time.Second)
	for i, w := range d.Status().Workers {
		n := w.Rounds - before[i].Rounds
		t.Logf("worker %s made %d rounds a second", w.Name, n/span)
		if n > 100*span {
			t.Errorf("worker %s made %d rounds in %d s in which nothing happened", w.Name, n, span)
		}
	}
}
