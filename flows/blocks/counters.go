package blocks

import (
	"errors"
	"sync/atomic"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/internal/latency"
)

// reasons is how many there are, None included.
var reasons = len(protocol.Reasons()) + 1

// refusals are counted by reason. Only the worker's thread writes them.
type refusals []counter.Counter

func newRefusals() refusals { return make(refusals, reasons) }

func (r refusals) read() map[protocol.Reason]uint64 {
	return byReason(func(i int) uint64 { return r[i].Load() })
}

// turnedAway counts clients by the reason of their refusal. Any goroutine may write it.
type turnedAway []atomic.Uint64

func newTurnedAway() turnedAway { return make(turnedAway, reasons) }

func (r turnedAway) read() map[protocol.Reason]uint64 {
	return byReason(func(i int) uint64 { return r[i].Load() })
}

// byReason collects the counts that are not 0.
func byReason(count func(i int) uint64) map[protocol.Reason]uint64 {
	m := make(map[protocol.Reason]uint64)
	for i := range reasons {
		if n := count(i); n > 0 {
			m[protocol.Reason(i)] = n
		}
	}
	return m
}

// cacheCounters are those of one shelf.
type cacheCounters struct{ hits, misses, evicted, reads, bytesRead, failed counter.Counter }

// counters are a server's.
type counters struct {
	requests, served, bytes, waited, abandoned counter.Counter
	retried                                    counter.Counter // requests that were read again by themselves
	ended                                      counter.Counter // clients that were ended for what they did, or because their queue pair failed
	refused                                    refusals
	turnedAway                                 turnedAway // clients, counted by who serves them
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
