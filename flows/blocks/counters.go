package blocks

import (
	"errors"
	"sync/atomic"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/latency"
)

// counter is one that the worker's thread writes and any goroutine reads.
type counter struct{ atomic.Uint64 }

func (c *counter) add(n uint64) { c.Store(c.Load() + n) }

// reasons is how many there are, None included.
var reasons = len(protocol.Reasons()) + 1

// refusals are counted by reason.
type refusals []counter

func newRefusals() refusals { return make(refusals, reasons) }

func (r refusals) read() map[protocol.Reason]uint64 {
	m := make(map[protocol.Reason]uint64)
	for i := range r {
		if n := r[i].Load(); n > 0 {
			m[protocol.Reason(i)] = n
		}
	}
	return m
}

// shelfCounters are those of one shelf.
type shelfCounters struct{ hits, misses, evicted, reads, bytesRead, failed counter }

// counters are a server's.
type counters struct {
	requests, served, bytes, waited, abandoned counter
	retried                                    counter // requests that were read again by themselves
	ended                                      counter // clients that were ended for what they did, or because their queue pair failed
	refused                                    refusals
	turnedAway                                 refusals // clients, counted by who serves them
	latency                                    latency.Shared
}

// turnAway counts a client that was refused: as Busy where the server itself could not take it. It may be called from any goroutine.
func (c *counters) turnAway(err error) {
	why, is := errors.AsType[protocol.Reason](err)
	if !is {
		why = protocol.Busy
	}
	c.turnedAway[why].Add(1)
}
