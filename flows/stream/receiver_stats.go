package stream

import (
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/counter"
)

// Indices of the published counters of a session.
const (
	shownMessages = iota
	shownBytes
	shownSequence
	shownAcknowledged
	shownLimit
	shownSeen
	shownGranted
	shownAll
)

// sessionCounters are the counters that Stats reports of a session.
type sessionCounters struct {
	messages, bytes uint64                    // counted by the worker
	shown           [shownAll]counter.Counter // published by the worker when they change
	state           atomic.Uint32
	name            string // of the last connection's peer, under sessions.mu
	cause           error  // of its end, under sessions.mu
}

// ownCounters are counters that only the worker writes.
type ownCounters struct {
	messages, bytes, replays, dropped, progress, connected, failed, grants, early uint64
}

func (c *ownCounters) list() [9]uint64 {
	return [9]uint64{c.messages, c.bytes, c.replays, c.dropped, c.progress, c.connected, c.failed, c.grants, c.early}
}

type receiverStats struct {
	own     ownCounters
	shown   [9]counter.Counter
	posted  atomic.Int64
	refused [256]atomic.Uint64 // by Reason; any goroutine writes it
}

// publish publishes counters that have changed.
func (r *Receiver) publish() {
	for i, v := range r.stats.own.list() {
		r.stats.shown[i].Set(v)
	}
	if r.stats.posted.Load() != int64(r.posted) {
		r.stats.posted.Store(int64(r.posted))
	}
}

// publish publishes the changed counters of a session.
func (p *peer) publish(now time.Time) {
	s := p.session
	if p.moved {
		p.moved, s.seen = false, now.UnixNano()
	}
	for i, v := range [shownAll]uint64{s.count.messages, s.count.bytes, s.taken, s.acknowledged, p.shownLimit(), uint64(s.seen), p.writable()} {
		s.count.shown[i].Set(v)
	}
}

// writable returns how many frames the peer may write.
func (p *peer) writable() uint64 {
	if p.granted == nil || p.granted.ended {
		return 0
	}
	return p.granted.made - p.granted.asked
}

// ReceiverStats are the counters of a receiver since it was opened.
type ReceiverStats struct {
	Connected, Failed uint64                     // connections established, and those that failed
	Messages, Bytes   uint64                     // accepted, headers included
	Replays           uint64                     // messages dropped because they were accepted before
	Early             uint64                     // messages that came over one of several paths before their turn, and waited
	Dropped           uint64                     // messages of peers that were ending
	Progress          uint64                     // progress messages sent
	Refused           map[protocol.Reason]uint64 // refused hellos and peers, by reason
	Posted            int64                      // receives, or frames to be written, without a message
	Granted           uint64                     // frames that peers may write now (with Write)
	Grants            uint64                     // grants made so far
	Sessions          []SessionStats             // the known sessions, by number
}

// SessionStats are the counters of one session, over all its connections.
type SessionStats struct {
	Name            string // of the peer's certificate, or its address
	Session         uint64
	State           string // connecting, connected, ending, failed or disconnected
	Messages, Bytes uint64
	Sequence        uint64 // the highest accepted
	Acknowledged    uint64
	Limit           uint64    // the last sequence that it may send
	Granted         uint64    // frames that it may write
	Seen            time.Time // of the last message or connection
	Cause           error     // of the end of the last connection; nil while connected
}

// Stats may be called from any goroutine. The counters are those of all devices.
func (r *Receiver) Stats() ReceiverStats {
	out := r.counts()
	for _, o := range r.others {
		out.add(o.counts())
	}
	r.sessions.mu.Lock()
	defer r.sessions.mu.Unlock()
	for _, s := range r.sessions.list {
		out.Sessions = append(out.Sessions, s.stats())
		out.Granted += out.Sessions[len(out.Sessions)-1].Granted
	}
	return out
}

// counts returns the counters of one device.
func (r *Receiver) counts() ReceiverStats {
	at := func(i int) uint64 { return r.stats.shown[i].Load() }
	out := ReceiverStats{Messages: at(0), Bytes: at(1), Replays: at(2), Dropped: at(3), Progress: at(4), Connected: at(5), Failed: at(6), Grants: at(7), Early: at(8),
		Posted: r.stats.posted.Load(), Refused: map[protocol.Reason]uint64{}}
	for why := range r.stats.refused {
		if n := r.stats.refused[why].Load(); n > 0 {
			out.Refused[protocol.Reason(why)] = n
		}
	}
	return out
}

func (s *session) stats() SessionStats {
	c := &s.count
	at := func(i int) uint64 { return c.shown[i].Load() }
	return SessionStats{Name: c.name, Session: s.id, State: state(c.state.Load()).String(), Messages: at(shownMessages), Bytes: at(shownBytes),
		Sequence: at(shownSequence), Acknowledged: at(shownAcknowledged), Limit: at(shownLimit), Granted: at(shownGranted), Seen: time.Unix(0, int64(at(shownSeen))), Cause: c.cause}
}
