package bpf

import "github.com/cilium/ebpf"

// current is what one instance of the program does not share with others.
type current struct {
	decides  table
	own      *ebpf.Map // the counters of the user's program; nil: it has none
	ownNames []string  // of those
}

// newCurrent takes what it needs out of the collection.
func newCurrent(s table, spec *ebpf.CollectionSpec, collection *ebpf.Collection) current {
	c := current{decides: s}
	if counters := spec.Maps[ownPrefix+ownCounters]; counters != nil {
		c.own, c.ownNames = collection.DetachMap(ownPrefix+ownCounters), counterNames(counters)
	}
	return c
}

func (c *current) close() error { return c.own.Close() }
