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

// Stats are the counters of a server since it was opened.
type Stats struct {
	Requests  uint64 // received, including refused ones
	Served    uint64 // requests whose bytes have arrived at the client
	Bytes     uint64 // of those requests
	Retried   uint64 // requests with a failed read that were read again exactly
	Waited    uint64 // requests that had to wait for buffers
	Abandoned uint64 // requests without a known end, because the client is gone
	Ended     uint64 // clients ended because they broke the protocol or their queue pair failed
	Refused   map[protocol.Reason]uint64
	// TurnedAway are refused clients by reason; Busy also if the server could not take another one.
	TurnedAway map[protocol.Reason]uint64
	Frames     Cache            // of requests served from frames
	Extents    Cache            // of requests served from extents
	Latency    *latency.Summary // from the arrival of a request to the completion of its answer; nil: none yet
	Disk       nvme.Stats
	Kept       uint64             // buffers with data of an earlier server, with Config.Index
	Discarded  map[Discard]uint64 // buffers whose data was not used, by reason
	Clients    []ClientStats      // the connected ones
}

// Cache is the use of the buffers of one kind.
type Cache struct {
	Buffers                 int    // in all
	Hits, Misses, Evictions uint64 // pieces found; not found; buffers emptied for others
	Reads, BytesRead        uint64 // buffers read from the disk, and bytes that succeeded
	Failed                  uint64 // buffers whose read failed
}

// ClientStats are the counters of one client since it connected.
type ClientStats struct {
	Name                    string // of its certificate; empty without TLS
	Address                 string
	Since                   time.Time
	Requests, Served, Bytes uint64
	Refused                 map[protocol.Reason]uint64
}

// clientInfo identifies the client of a session; the zero value is none.
type clientInfo struct {
	name, address string
	since         time.Time
}

// clientCounters are the counters of one client.
type clientCounters struct {
	requests, served, bytes counter.Counter
	refused                 refusals
}

func newClientCounters() *clientCounters { return &clientCounters{refused: newRefusals()} }

// setClient sets the client of a session, and starts its counters again.
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
		Frames: s.cache(frameCache), Extents: s.cache(extentCache), Kept: s.kept, Discarded: s.discarded}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.sessions {
		if p := &s.sessions[i]; p.who.address != "" {
			out.Clients = append(out.Clients, p.stats())
		}
	}
	return out
}

// Traffic returns the requests that were served and their bytes. Any goroutine may call it. It takes no lock.
func (s *Server) Traffic() (served, bytes uint64) { return s.count.served.Load(), s.count.bytes.Load() }

func (s *Server) cache(cache int) Cache {
	c := &s.caches[cache].count
	return Cache{Buffers: s.plan.caches[cache].buffers, Hits: c.hits.Load(), Misses: c.misses.Load(), Evictions: c.evicted.Load(),
		Reads: c.reads.Load(), BytesRead: c.bytesRead.Load(), Failed: c.failed.Load()}
}

// stats is called with Server.mu held.
func (p *session) stats() ClientStats {
	return ClientStats{Name: p.who.name, Address: p.who.address, Since: p.who.since, Requests: p.count.requests.Load(), Served: p.count.served.Load(),
		Bytes: p.count.bytes.Load(), Refused: p.count.refused.read()}
}

// reasons is the number of reasons, including None.
var reasons = len(protocol.Reasons()) + 1

// refusals are counters by reason. Only the worker's thread writes them.
type refusals []counter.Counter

func newRefusals() refusals { return make(refusals, reasons) }

func (r refusals) read() map[protocol.Reason]uint64 {
	return byReason(func(i int) uint64 { return r[i].Load() })
}

// turnedAway counts refused clients by reason. Any goroutine may write it.
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

// cacheCounters are the counters of one cache.
type cacheCounters struct{ hits, misses, evicted, reads, bytesRead, failed counter.Counter }

// counters are the counters of a server.
type counters struct {
	requests, served, bytes, waited, abandoned counter.Counter
	retried                                    counter.Counter // requests that were read again exactly
	ended                                      counter.Counter // clients that broke the protocol or whose queue pair failed
	refused                                    refusals
	turnedAway                                 turnedAway // refused clients; written by any goroutine
	latency                                    latency.Shared
}

// turnAway counts a refused client: as Busy if the server could not take it. It may be called from
// any goroutine.
func (c *counters) turnAway(err error) {
	why, is := errors.AsType[protocol.Reason](err)
	if !is {
		why = protocol.Busy
	}
	c.turnedAway[why].Add(1)
}
