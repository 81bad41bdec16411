package blocks

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/nvme"
)

// Stats are a server's counters since it was opened.
type Stats struct {
	Requests  uint64 // that came, those refused too
	Served    uint64 // requests whose bytes have arrived at the client
	Bytes     uint64 // of those
	Retried   uint64 // requests of which a buffer could not be read, and that were read again just as they asked
	Waited    uint64 // requests that could not be begun at once for want of buffers
	Abandoned uint64 // requests of which nobody knows an end, because the client is gone
	Ended     uint64 // clients that were ended: they broke the protocol, or their queue pair failed
	Refused   map[protocol.Reason]uint64
	// TurnedAway are clients that were refused, by reason; Busy, too, where it could not take another one.
	TurnedAway map[protocol.Reason]uint64
	Frames     Cache            // of requests that were cut into frames
	Extents    Cache            // likewise
	Latency    *latency.Summary // from a request to its bytes having arrived; nil: none yet
	Disk       nvme.Stats
	Clients    []ClientStats // those there are
}

// Cache is what was found in the region, in buffers of one kind.
type Cache struct {
	Buffers                 int    // that there are
	Hits, Misses, Evictions uint64 // buffers that were there; that were not; and that were emptied for others
	Reads, BytesRead        uint64 // buffers that the disk was asked to fill, and bytes that it did
	Failed                  uint64 // buffers that it did not
}

// ClientStats are those of one client since it connected.
type ClientStats struct {
	Name                    string // of its certificate; else empty
	Address                 string
	Since                   time.Time
	Requests, Served, Bytes uint64
	Refused                 map[protocol.Reason]uint64
}

// clientInfo is in a session; the zero value is nobody.
type clientInfo struct {
	name, address string
	since         time.Time
}

// clientCounters are those of one client.
type clientCounters struct {
	requests, served, bytes counter.Counter
	refused                 refusals
}

func newClientCounters() *clientCounters { return &clientCounters{refused: newRefusals()} }

// setClient notes who is in a session, whose counters begin anew.
func (s *Server) setClient(p *session, w clientInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.who, p.count = w, newClientCounters()
}

// Stats may be called from any goroutine.
func (s *Server) Stats() Stats {
	c := &s.count
	out := Stats{Requests: c.requests.Load(), Served: c.served.Load(), Bytes: c.bytes.Load(), Waited: c.waited.Load(), Retried: c.retried.Load(), Abandoned: c.abandoned.Load(),
		Ended: c.ended.Load(), Refused: c.refused.read(), TurnedAway: c.turnedAway.read(), Latency: c.latency.Summary(), Disk: s.queue.Stats(),
		Frames: s.cache(frameCache), Extents: s.cache(extentCache)}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.sessions {
		if p := &s.sessions[i]; p.who.address != "" {
			out.Clients = append(out.Clients, p.stats())
		}
	}
	return out
}

func (s *Server) cache(cache int) Cache {
	c := &s.caches[cache].count
	return Cache{Buffers: s.plan.caches[cache].buffers, Hits: c.hits.Load(), Misses: c.misses.Load(), Evictions: c.evicted.Load(),
		Reads: c.reads.Load(), BytesRead: c.bytesRead.Load(), Failed: c.failed.Load()}
}

// stats are read under Server.mu.
func (p *session) stats() ClientStats {
	return ClientStats{Name: p.who.name, Address: p.who.address, Since: p.who.since, Requests: p.count.requests.Load(), Served: p.count.served.Load(),
		Bytes: p.count.bytes.Load(), Refused: p.count.refused.read()}
}

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

// cacheCounters are those of one cache.
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
