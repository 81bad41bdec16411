package powercut

import (
	"fmt"
	"path/filepath"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// flow is one of the guest's captures, logs or targets, one after the other, so that no flush of one
// covers for another.
type flow struct {
	number      int
	layout      string
	part        int    // of Parts; 0 is the file system, where the flow has a name of its own
	acknowledge string // of a log: what acknowledgements mean; empty: none
}

// chosen are the flows of a record: in the long form each layout on each kind of target.
func chosen(long bool) (captures, logs, targets []flow) {
	if !long {
		return []flow{{0, "packed", 0, ""}, {1, "slot", 1, ""}},
			[]flow{{2, "slot", 0, durable}},
			[]flow{{3, served, 2, ""}}
	}
	return []flow{{0, "packed", 0, ""}, {1, "slot", 0, ""}, {2, "packed", 1, ""}, {3, "slot", 2, ""}},
		[]flow{{4, "packed", 0, durable}, {5, "slot", 0, durable}, {6, "slot", 0, "written"}, {7, "packed", 1, durable}, {8, "slot", 2, durable}},
		[]flow{{9, served, 0, ""}, {10, served, 2, ""}}
}

// served is the layout of a target, which is the host's.
const served = "blocks"

const durable = "durable"

func (f flow) name() string { return fmt.Sprintf("flow%d", f.number) }

// isLog reports whether it is a log.
func (f flow) isLog() bool { return f.acknowledge != "" }

// isTarget reports whether NVMe hosts write there.
func (f flow) isTarget() bool { return f.layout == served }

// onDevice reports whether it captures onto a device, past any file system.
func (f flow) onDevice() bool { return f.part > 0 }

// prefix begins the names of its files below a directory.
func (f flow) prefix(dir string) string { return filepath.Join(dir, f.name()) }

// to is where it writes, in a configuration: files below dir, or the device dev.
func (f flow) to(dir, dev string) string {
	if f.onDevice() {
		return "device: " + dev
	}
	return "file: " + f.prefix(dir)
}

// yaml is a capture in a configuration, of an interface.
func (f flow) yaml(ifname, dir, dev string) string {
	return fmt.Sprintf("  - {name: %s, from: {interface: %s, ring: 4096}, "+
		"to: {%s, layout: %s, segment: {size: 1MiB}, flush: 10ms, durable: 150ms}}\n", f.name(), ifname, f.to(dir, dev), f.layout)
}

// logYAML is a log in a configuration, of clients that come to an end.
func (f flow) logYAML(e *testenv.End, dir, dev string) string {
	return fmt.Sprintf("  - {name: %s, from: {rdma: \"roce:%s\", listen: \"%s\", clients: 8, window: 64}, "+
		"to: {%s, layout: %s, acknowledge: %s, segment: {size: 1MiB}, flush: 10ms, durable: 150ms}}\n",
		f.name(), e.Ifname, f.address(e), f.to(dir, dev), f.layout, f.acknowledge)
}

// address is where a log listens at an end.
func (f flow) address(e *testenv.End) string { return fmt.Sprintf("%s:%d", e.IP, 7471+f.number) }

// clients are the numbers of those of a log in the guest.
func (f flow) clients() []uint32 { n := uint32(f.number) * 100; return []uint32{n + 1, n + 2, n + 3} }

// later are the numbers of those that come when a log goes on behind a cut.
func (f flow) later() []uint32 { n := uint32(f.number) * 100; return []uint32{n + 11, n + 12} }

// packet is what the guest sends as number n to the flow.
func (f flow) packet(p *testenv.Pair, n uint64) []byte {
	return testenv.UDP(&p.A, &p.B, 5000+uint16(f.number), n, 60+int(n*2654435761%1455))
}
