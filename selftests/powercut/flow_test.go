package powercut

import (
	"fmt"
	"path/filepath"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// flow is one of the guest's captures, logs or targets. They run one after the other, so that no
// flush of one flow makes the data of another durable.
type flow struct {
	number      int
	layout      string
	part        int    // index in parts; 0 is the file system, where the flow's files have their own names
	acknowledge string // of a log: what acknowledgements mean; empty: not a log
}

// chosen returns the flows of a record. The long form has each layout on each kind of target.
func chosen(long bool) (captures, logs, targets []flow) {
	if !long {
		return []flow{{0, "packed", 0, ""}, {1, passive, 0, ""}, {2, "slot", 1, ""}},
			[]flow{{3, "slot", 0, durable}},
			[]flow{{4, served, 2, ""}}
	}
	return []flow{{0, "packed", 0, ""}, {1, "slot", 0, ""}, {2, passive, 0, ""}, {3, "packed", 1, ""}, {4, "slot", 2, ""}},
		[]flow{{5, "packed", 0, durable}, {6, "slot", 0, durable}, {7, "slot", 0, "written"}, {8, "packed", 1, durable}, {9, "slot", 2, durable}},
		[]flow{{10, served, 0, ""}, {11, served, 2, ""}}
}

// served is the layout of an NVMe target, where the host decides what each block has.
const served = "blocks"

// passive is the layout of a capture from a packet socket, which has none of its own.
const passive = "ring of a packet socket"

const durable = "durable"

func (f flow) name() string { return fmt.Sprintf("flow%d", f.number) }

// isLog reports whether it is a log.
func (f flow) isLog() bool { return f.acknowledge != "" }

// isTarget reports whether NVMe hosts write there.
func (f flow) isTarget() bool { return f.layout == served }

// onDevice reports whether the flow writes to a device, without a file system.
func (f flow) onDevice() bool { return f.part > 0 }

// prefix is the path prefix of the flow's files below a directory.
func (f flow) prefix(dir string) string { return filepath.Join(dir, f.name()) }

// to is the flow's target in a configuration: files below dir, or the device dev.
func (f flow) to(dir, dev string) string {
	if f.onDevice() {
		return "device: " + dev
	}
	return "file: " + f.prefix(dir)
}

// yaml is the configuration of a capture from an interface.
func (f flow) yaml(ifname, dir, dev string) string {
	from, layout := "ring: 4096", f.layout
	if f.layout == passive {
		from, layout = "engine: packet, buffer: 4MiB", "packed"
	}
	return fmt.Sprintf("  - {name: %s, from: {interface: %s, %s}, "+
		"to: {%s, layout: %s, segment: {size: 1MiB}, flush: 10ms, durable: 150ms}}\n", f.name(), ifname, from, f.to(dir, dev), layout)
}

// logYAML is the configuration of a log for clients that connect to an end.
func (f flow) logYAML(e *testenv.End, dir, dev string) string {
	return fmt.Sprintf("  - {name: %s, from: {rdma: \"roce:%s\", listen: \"%s\", clients: 8, window: 64}, "+
		"to: {%s, layout: %s, acknowledge: %s, segment: {size: 1MiB}, flush: 10ms, durable: 150ms}}\n",
		f.name(), e.Ifname, f.address(e), f.to(dir, dev), f.layout, f.acknowledge)
}

// address is the address of a log's listener at an end.
func (f flow) address(e *testenv.End) string { return fmt.Sprintf("%s:%d", e.IP, 7471+f.number) }

// clients returns the numbers of the clients of a log in the guest.
func (f flow) clients() []uint32 { n := uint32(f.number) * 100; return []uint32{n + 1, n + 2, n + 3} }

// later returns the numbers of the clients that append to a log after a cut.
func (f flow) later() []uint32 { n := uint32(f.number) * 100; return []uint32{n + 11, n + 12} }

// packet is packet n that the guest sends to the flow.
func (f flow) packet(p *testenv.Pair, n uint64) []byte {
	return testenv.UDP(&p.A, &p.B, 5000+uint16(f.number), n, 60+int(n*2654435761%1455))
}
