package stream

import (
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// Times of a sender with several paths. A message that is not acknowledged by the other device is sent again after
// 67 ms, 134 ms and 268 ms (RoCE in software; cards may wait up to four times as long), and then the path has failed.
// That is less than three times the 268 ms that a sender with one path waits for an ACK.
const (
	pathTimeout = 14 // 4.096 µs << 14
	pathRetries = 3
	// pathSilence is the time after which a path without traffic has failed: the TCP connection then has three probes
	// without an answer.
	pathSilence = 3 * time.Second
	// pathHandshake limits an attempt to connect over a path.
	pathHandshake = 1500 * time.Millisecond
	// A path that has failed is tried again after leastPathPause. The time doubles up to mostPathPause each time that it
	// fails again before it has lasted for pathWell, so that a path that comes and goes is seldom taken.
	leastPathPause = 500 * time.Millisecond
	mostPathPause  = 8 * time.Second
	pathWell       = 10 * time.Second
)

// PathTimes gives a queue pair, and its handshake, the times of one of several paths: a path that has failed is left soon.
func PathTimes(settings *connect.Settings, with *connect.Config) {
	settings.Timeout, settings.Retries = pathTimeout, pathRetries
	with.Timeout, with.Silence = pathHandshake, pathSilence
}

// PathRecord is what a sender remembers of one of several paths: its state, and when to try it again. One goroutine at a
// time calls Takes, Leaves and Rest, the worker Probed; any calls Stats. The zero value is a path that was not used yet.
type PathRecord struct {
	began time.Time     // when the connection began; zero: there is none
	pause time.Duration // before the next attempt
	rest  time.Time     // no attempt before, if there is another path

	connections atomic.Uint64
	failures    atomic.Uint64
	probes      counter.Counter
	shownState  atomic.Pointer[pathState] // nil: it was not used yet
}

// pathState is replaced as a whole.
type pathState struct {
	state, cause string
	taken, left  time.Time
}

// States of a path.
const (
	PathConnected = "connected" // messages go over it
	PathStandby   = "standby"   // another one is preferred, or this one was not needed yet
	PathFailed    = "failed"    // its last connection or attempt failed
)

// PathStats are the state and counters of a path since the sender was opened.
type PathStats struct {
	Device, Address string
	State           string    // one of the above
	Cause           string    // why it failed last; it stays until the path is connected again
	Connections     uint64    // times that it was taken
	Failures        uint64    // connections that ended, and attempts that failed
	Messages        uint64    // posted
	Probes          uint64    // of a silent peer
	Taken, Left     time.Time // the last times; zero: never
}

// current returns the state.
func (p *PathRecord) current() pathState {
	if now := p.shownState.Load(); now != nil {
		return *now
	}
	return pathState{state: PathStandby}
}

// Rest returns the time before which there is no attempt, if there is another path.
func (p *PathRecord) Rest() time.Time { return p.rest }

// Takes records that the path is connected.
func (p *PathRecord) Takes() {
	p.began = time.Now()
	p.connections.Add(1)
	p.shownState.Store(&pathState{state: PathConnected, taken: p.began, left: p.current().left})
}

// Leaves records that the path is not used any more. cause is why it failed; nil: another one is preferred.
func (p *PathRecord) Leaves(cause error) {
	now := time.Now()
	next := p.current()
	next.state = PathStandby
	if next.cause = ""; cause != nil {
		next.state, next.cause = PathFailed, cause.Error()
		if !p.began.IsZero() && now.Sub(p.began) > pathWell {
			p.pause = 0
		}
		p.pause = min(max(2*p.pause, leastPathPause), mostPathPause)
		p.rest = now.Add(p.pause)
		p.failures.Add(1)
	}
	if !p.began.IsZero() {
		p.began, next.left = time.Time{}, now
	}
	p.shownState.Store(&next)
}

// Probed counts a probe.
func (p *PathRecord) Probed() { p.probes.Add(1) }

// Stats returns the state and the counters. The caller fills in the device, the address and the messages.
func (p *PathRecord) Stats() PathStats {
	now := p.current()
	return PathStats{State: now.state, Cause: now.cause, Connections: p.connections.Load(), Failures: p.failures.Load(), Probes: p.probes.Load(), Taken: now.taken, Left: now.left}
}
