package doctor

import (
	"github.com/unifiedd/unifiedd/flows/config"
)

// Options select what to examine. The zero value examines the machine and all of its interfaces
// except loopback, for the default configuration.
type Options struct {
	Interfaces []string // by name; empty: those of Config, or all but loopback
	Disks      []string // files, directories or block devices, in addition to those of Config
	// Config is the configuration to examine the machine for; nil: the defaults.
	Config *config.Config
	// File is the path that Config was read from. If a unit of systemd runs the daemon with it, what that unit's user may
	// do is the measure.
	File string
	// Taken names what of a running daemon takes the packets of an interface, by the interface's name.
	Taken map[string]string
}

// Examine examines the machine. Before it returns, it removes everything that it opened, made or
// attached.
func Examine(o Options) *Report {
	n := newNeeds(o)
	r := &Report{Format: format}
	r.add("kernel", kernel())
	r.add("rights", rights())
	r.add("memory", memory(n))
	r.addContainer(n)
	r.add("processors", processors(n))
	for _, name := range n.interfaces {
		r.add("interface "+name, examineInterface(name, n))
	}
	for _, path := range n.disks {
		r.add("disk "+path, disk(path, n))
	}
	r.addTLS(n)
	r.addCluster(n)
	r.addRDMA(n)
	r.addFlows(n)
	return r
}
