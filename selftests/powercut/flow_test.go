package powercut

import (
	"fmt"
	"path/filepath"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// flow is one of the guest's captures, one after the other, so that no flush of one
// covers for another.
type flow struct {
	number int
	layout string
	part   int // of Parts; 0 is the file system, where the flow has a name of its own
}

// chosen are the flows of a record: in the long form each layout on each kind of target.
func chosen(long bool) []flow {
	if long {
		return []flow{{0, "packed", 0}, {1, "slot", 0}, {2, "packed", 1}, {3, "slot", 2}}
	}
	return []flow{{0, "packed", 0}, {1, "slot", 1}}
}

// maxFlows is how many there are at most.
const maxFlows = 4

func (f flow) name() string { return fmt.Sprintf("cap%d", f.number) }

// onDevice reports whether it captures onto a device, past any file system.
func (f flow) onDevice() bool { return f.part > 0 }

// prefix begins the names of its files below a directory.
func (f flow) prefix(dir string) string { return filepath.Join(dir, f.name()) }

// yaml is the flow in a configuration, with its files below dir, or on the device dev.
func (f flow) yaml(ifname, dir, dev string) string {
	to := "file: " + f.prefix(dir)
	if f.onDevice() {
		to = "device: " + dev
	}
	return fmt.Sprintf("  - {name: %s, from: {interface: %s, ring: 4096}, "+
		"to: {%s, layout: %s, segment: {size: 1MiB}, flush: 10ms, durable: 150ms}}\n", f.name(), ifname, to, f.layout)
}

// packet is what the guest sends as number n to the flow.
func (f flow) packet(p *testenv.Pair, n uint64) []byte {
	return testenv.UDP(&p.A, &p.B, 5000+uint16(f.number), n, 60+int(n*2654435761%1455))
}
