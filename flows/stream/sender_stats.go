package stream

import (
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// States of a sender.
const (
	SenderWaiting    = "waiting"    // until the next attempt, or for Run
	SenderConnecting = "connecting" // an attempt is being made
	SenderConnected  = "connected"
	SenderStopped    = "stopped" // Run has returned
)

// SenderStats are the state and counters of a sender since it was opened.
type SenderStats struct {
	Name    string
	Address string
	State   string // one of the above
	// Cause is why the last connection ended or failed; empty while connected.
	Cause string
	// Peer is the name in the receiver's certificate, empty without TLS. Durability is what its
	// acknowledgements mean. Both are of the last connection.
	Peer       string
	Durability protocol.Durability
	// Method is the method of the last connection; empty before the first.
	Method Method

	Connections  uint64 // established
	Failures     uint64 // ended connections and failed attempts
	Standby      int    // connections to members of a group that wait until these lead
	Moves        uint64 // connections that have begun so
	Followed     uint64 // times that the sender went to another address because the receiver had moved
	Sessions     uint64 // new sessions, after Abandon or because the receiver forgot
	Posted       uint64 // messages, each transmission counted
	Bytes        uint64 // of their payloads
	Acknowledged uint64 // messages
	Resent       uint64 // messages posted again after a reconnect
	Dropped      uint64 // messages given up by Drop and Abandon
	Forgotten    uint64 // messages that the receiver had acknowledged and did not have after a reconnect
	// Silence is the longest time without an acknowledgement while a message waited for one. It is as
	// exact as Poll is frequent.
	Silence time.Duration

	Waiting  int // messages not posted yet
	InFlight int // posted messages that are not acknowledged
	Credit   uint64
	// Paths are the ways to the receiver, if there are several: the preferred one first. Of a group they are those to the
	// first member, then those to the second one, and so on.
	Paths []PathStats
	// Single is why the sender uses one path at a time although it may use all; empty: it uses all, or has to use one.
	Single string
	// Latency is the time from Send to acknowledgement; nil before the first one.
	Latency *latency.Summary
}

// senderCounters are counters that only the worker writes.
type senderCounters struct {
	posted, bytes, acknowledged, resent, dropped, forgotten, sessions, silence uint64
}

// senderStats is the data that other goroutines read. The worker publishes its changes once a
// round; Run publishes the rest.
type senderStats struct {
	count        senderCounters
	stale        bool // something changed without a completion; worker only
	posted       counter.Counter
	bytes        counter.Counter
	acknowledged counter.Counter
	resent       counter.Counter
	dropped      counter.Counter
	forgotten    counter.Counter
	sessions     counter.Counter
	silence      counter.Counter
	waiting      counter.Counter
	flight       counter.Counter
	credit       counter.Counter
	latency      latency.Shared

	state       atomic.Pointer[senderState]
	connections atomic.Uint64
	failures    atomic.Uint64
	standing    atomic.Int64
	moves       atomic.Uint64
	followed    atomic.Uint64
	single      atomic.Pointer[string] // see SenderStats; nil: empty
	address     atomic.Pointer[string] // that is dialed, of a receiver with a place; nil: none yet
}

// senderState is replaced as a whole.
type senderState struct {
	state, cause, peer string
	durability         protocol.Durability
	method             Method
}

func (t *senderStats) begin() { t.state.Store(&senderState{state: SenderWaiting}) }

// enter sets the state, and returns the previous cause. A cause stays until there is another one,
// or a connection.
func (t *senderStats) enter(state string, cause error) (before string) {
	next := *t.state.Load()
	before, next.state = next.cause, state
	if cause != nil {
		next.cause = cause.Error()
	}
	t.state.Store(&next)
	if cause != nil {
		t.failures.Add(1) // after the cause, so that a reader of the count sees the cause
	}
	return before
}

func (t *senderStats) connected(p connect.Peer, h *protocol.Hello) {
	t.state.Store(&senderState{state: SenderConnected, peer: p.Name, durability: h.Durability, method: methodOf(h)})
	t.connections.Add(1)
}

// methodOf returns the method that a receiver's hello asks for.
func methodOf(h *protocol.Hello) Method {
	if h.Capabilities&protocol.CapabilityWrite != 0 {
		return ByWrite
	}
	return BySend
}

// publish publishes changes. The worker calls it.
func (t *senderStats) publish(s *Sender) {
	c := &t.count
	t.stale = false
	t.posted.Set(c.posted)
	t.bytes.Set(c.bytes)
	t.acknowledged.Set(c.acknowledged)
	t.resent.Set(c.resent)
	t.dropped.Set(c.dropped)
	t.forgotten.Set(c.forgotten)
	t.sessions.Set(c.sessions)
	t.silence.Set(c.silence)
	t.waiting.Set(uint64(s.out.waiting.Len()))
	t.flight.Set(s.flight())
	t.credit.Set(s.credit())
	s.on.shown.Set(s.on.posted)
	if s.spread != nil {
		for _, p := range s.paths {
			p.shown.Set(p.posted)
		}
	}
}

// credit returns how many messages may be posted now.
func (s *Sender) credit() uint64 {
	if s.link == nil {
		return 0
	}
	if s.spread != nil {
		return s.creditOverAll()
	}
	to := min(s.limit, s.granted())
	return to - min(s.sent, to)
}

// Stats may be called from any goroutine.
func (s *Sender) Stats() SenderStats {
	t := &s.stats
	connections, failures := t.connections.Load(), t.failures.Load()
	now := t.state.Load() // not older than the counters
	return SenderStats{
		Name: s.config.Name, Address: s.address(), State: now.state, Cause: now.cause, Peer: now.peer, Durability: now.durability, Method: now.method,
		Connections: connections, Failures: failures, Standby: int(t.standing.Load()), Moves: t.moves.Load(), Followed: t.followed.Load(), Sessions: t.sessions.Load(), Posted: t.posted.Load(), Bytes: t.bytes.Load(),
		Acknowledged: t.acknowledged.Load(), Resent: t.resent.Load(), Dropped: t.dropped.Load(), Forgotten: t.forgotten.Load(), Silence: time.Duration(t.silence.Load()),
		Waiting: int(t.waiting.Load()), InFlight: int(t.flight.Load()), Credit: t.credit.Load(), Latency: t.latency.Summary(),
		Paths: s.pathStats(), Single: s.single(),
	}
}

// SenderTimes records the time that messages take since they arrived: since the stamp of Send, or
// since the call of Send if the stamp is not a time of the system's clock (umem.Side). Senders of
// one worker may share one; any goroutine may read it.
type SenderTimes struct {
	Submitted latency.Shared // until the first transmission was posted
	Done      latency.Shared // until the acknowledgement of each receiver
}

// arrived returns when a message that is being sent arrived.
func (s *Sender) arrived(message []umem.Frame, stamp uint64) uint64 {
	if s.config.Times == nil || len(message) == 0 || s.region.Side(message[0]).Clock == umem.SystemClock {
		return stamp
	}
	return uint64(s.wall)
}

// submitted records the messages that were posted for the first time.
func (s *Sender) submitted() {
	if s.config.Times == nil || s.sent <= s.fresh {
		return
	}
	now := uint64(time.Now().UnixNano())
	s.fresh = max(s.fresh, s.out.first-1) // numbers may have been abandoned
	run := s.config.Times.Submitted.Run()
	for ; s.fresh < s.sent; s.fresh++ {
		run.Record(since(now, s.out.slots[s.out.at(s.fresh+1)].arrived))
	}
	run.End()
}

// finished records the latencies of the messages after number from, up to number to.
func (s *Sender) finished(from, to uint64) {
	if s.config.Times == nil {
		return
	}
	run := s.config.Times.Done.Run()
	for number := from + 1; number <= to; number++ {
		run.Record(since(uint64(s.wall), s.out.slots[s.out.at(number)].arrived))
	}
	run.End()
}

// since returns the time from then to now, or 0 if the clock was set back in between.
func since(now, then uint64) uint64 {
	if now < then {
		return 0
	}
	return now - then
}
