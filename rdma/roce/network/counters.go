package network

import "sync/atomic"

// Counters say how it went since Open.
type Counters struct {
	Overruns uint64 // the kernel had more to say than its buffer holds, and all was read again
	Rereads  uint64 // links and addresses were read again
	Looks    uint64 // at the neighbours of ways that are kept
	Failures uint64 // of questions to the kernel that are asked again later, permission for looks included
}

// counters are Counters that are counted in by the goroutine that watches and by Keep.
type counters struct {
	overruns, rereads, looks, failures atomic.Uint64
}

// Counters may be called at any time, after Close too.
func (i *Interface) Counters() Counters {
	c := &i.counter
	return Counters{c.overruns.Load(), c.rereads.Load(), c.looks.Load(), c.failures.Load()}
}

func (c *counters) looked(err error) {
	c.looks.Add(1)
	c.failed(err)
}

func (c *counters) failed(err error) {
	if err != nil {
		c.failures.Add(1)
	}
}
