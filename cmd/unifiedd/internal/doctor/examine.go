package doctor

import (
	"github.com/unifiedd/unifiedd/flows/config"
)

// Options say what to examine. The zero value is the machine and all of its
// interfaces but loopback, measured by the default configuration.
type Options struct {
	Interfaces []string // by name; empty: those of Config, or all but loopback
	Disks      []string // files, directories or block devices, besides those of Config
	// Config is the configuration to examine the machine for; nil: the defaults.
	Config *config.Config
}

// Examine looks at the machine. Whatever it opens, makes or attaches for trying
// is gone when it returns.
func Examine(o Options) *Report {
	n := newNeeds(o)
	r := &Report{Format: format}
	r.add("kernel", kernel())
	r.add("rights", rights())
	r.add("memory", memory(n))
	r.add("processors", processors(n))
	for _, name := range n.interfaces {
		r.add("interface "+name, examineInterface(name, n))
	}
	for _, path := range n.disks {
		r.add("disk "+path, disk(path, n))
	}
	r.addRDMA(n)
	r.addFlows(n)
	return r
}
