package roce

import (
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
)

// The bars on this machine, for messages of barred bytes.
const (
	barred      = 64
	pingpongBar = 1.25 // of the median of xsk-pingpong
	sockperfBar = 0.6  // of the median of sockperf
	tailBar     = 1.0  // of its 99th percentile
)

// The bars between guests, for Soft-RoCE with the programs of perftest.
const (
	softLatencyBar   = 0.5
	softBandwidthBar = 2
)

// How much a run of the usual form transfers here, and between guests.
const (
	messages      = 100_000
	moved         = 768 << 20
	guestMessages = 1000
	guestMoved    = 64 << 20
)

// chunk is the bytes of a message in tests of bandwidth.
const chunk = 65536

// share scales a number for the usual form to a form.
func share(n int, f bench.Form) int { return int(time.Duration(n) * f.Span / bench.Usual.Span) }

// latencyHere compares the latency of messages of a size with other sockets.
func latencyHere(p place, size int, f bench.Form, path, peer string) *contest {
	at := func(g *program) *runner { return &runner{program: g, place: p} }
	bare, udp := at(pingpong(peer)), at(sockperf())
	c := &contest{work: work{size: size, count: share(messages, f), seconds: max(1, int(f.Span.Seconds()))}}
	barIf := func(bar float64) float64 {
		if size != barred {
			return 0
		}
		return bar
	}
	for _, op := range []string{"send", "write"} {
		o := at(ours(path, op))
		c.runners = append(c.runners, o)
		c.duels = append(c.duels, duel{o, bare, typical, barIf(pingpongBar)}, duel{o, bare, tail, 0},
			duel{o, udp, typical, barIf(sockperfBar)}, duel{o, udp, tail, barIf(tailBar)})
	}
	c.runners = append(c.runners, bare, udp)
	return c
}

// bandwidthHere compares the bandwidth with TCP, over a link that passes packets and one that passes large
// segments.
func bandwidthHere(wire, large place, f bench.Form, path string) *contest {
	packets, segments := &runner{program: iperf3(), place: wire}, &runner{program: iperf3(), place: large}
	segments.name += " with large segments"
	c := &contest{work: work{size: chunk, count: share(moved, f) / chunk, bandwidth: true}}
	if f == bench.Short {
		c.count = 4 * depth
	}
	for _, op := range []string{"send", "write"} {
		o := &runner{program: ours(path, op), place: wire}
		c.runners = append(c.runners, o)
		for _, theirs := range []*runner{packets, segments} {
			c.duels = append(c.duels, duel{o, theirs, average, 0}, duel{o, theirs, cost, 0})
		}
	}
	c.runners = append(c.runners, packets, segments)
	return c
}

// betweenGuests compares an operation with the same operation over Soft-RoCE.
func betweenGuests(p place, op string, size int, f bench.Form, path, device string) *contest {
	o, theirs := &runner{program: ours(path, op), place: p}, &runner{program: perftest(op, device), place: p}
	c := &contest{work: work{size: size, count: share(guestMessages, f)}, runners: []*runner{o, theirs}}
	if size == chunk {
		c.bandwidth, c.count = true, max(share(guestMoved, f)/chunk, depth)
		c.duels = []duel{{o, theirs, average, softBandwidthBar}, {o, theirs, cost, 0}}
		return c
	}
	c.duels = []duel{{o, theirs, typical, softLatencyBar}, {o, theirs, tail, 0}}
	return c
}
