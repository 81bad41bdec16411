package soak

import (
	"strings"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
)

// says reports whether a text contains all the others.
func says(text string, all []string) bool {
	for _, one := range all {
		if !strings.Contains(text, one) {
			return false
		}
	}
	return true
}

// mark is a snapshot of the progress of each flow.
type mark struct {
	at   time.Time
	came map[string]uint64
	lost map[string]uint64 // by flow: the sum over all reasons
	pool int64
	held int64 // frames granted to peers
	wait int64 // posted receives
	pair int   // open queue pairs
}

func (r *rig) mark() mark {
	m := mark{at: time.Now(), came: map[string]uint64{}, lost: map[string]uint64{}}
	s := r.status()
	for _, f := range s.Flows {
		m.came[f.Name], m.lost[f.Name] = r.came(f.Name), lost(&f)
		if f.Receives != nil {
			m.wait += f.Receives.Posted
		}
	}
	m.pool, m.held, m.pair = s.Region.Owners["pool"], s.Region.Owners["granted"], pairs(&s)
	return m
}

// pairs returns how many queue pairs the daemon's devices have open.
func pairs(s *status.Daemon) (n int) {
	for _, d := range s.RDMA {
		n += d.QueuePairs
	}
	return n
}

// lost returns how much a flow has lost at its source, or on the way to the peer that must get everything.
func lost(f *status.Flow) (n uint64) {
	for _, k := range f.Dropped {
		n += k
	}
	if f.Sends != nil {
		for _, k := range f.Sends.Peers[0].Dropped {
			n += k
		}
	}
	return n
}

// The longest time over which a rate is measured. The measurement ends earlier if the flow has kept
// its rate.
const mostSpan = 15 * time.Second

// kept checks that the named flows kept their rates since a mark and lost nothing. A flow keeps its rate if
// it reaches four fifths of before over the span. On a busy machine the span may grow up to mostSpan.
func (r *rig) kept(since mark, span time.Duration, before map[string]float64, names ...string) {
	r.t.Helper()
	for _, name := range names {
		for {
			now := r.mark()
			seconds := now.at.Sub(since.at).Seconds()
			had := float64(now.came[name]-since.came[name]) / seconds
			if now.lost[name] != since.lost[name] {
				r.t.Errorf("flow %s has lost %d meanwhile: %+v", name, now.lost[name]-since.lost[name], r.flow(name))
				break
			}
			if now.at.Sub(since.at) >= span && had >= 0.8*before[name] {
				break
			}
			if now.at.Sub(since.at) > mostSpan {
				r.t.Errorf("flow %s had %.0f a second before, and %.0f over %.1f s meanwhile", name, before[name], had, seconds)
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// rates measures how many items a second each flow delivers to its far end. It waits until each
// flow reaches four fifths of the rate that is sent. A flow that catches up after the machine was
// busy counts with at most the rate that is sent.
func (r *rig) rates(span time.Duration) map[string]float64 {
	r.t.Helper()
	begin := r.mark()
	all := map[string]float64{}
	for _, name := range flowNames {
		rate := rateOf(name)
		r.await("flow "+name+" to have its rate", func() bool {
			now := r.mark()
			all[name] = min(rate, float64(now.came[name]-begin.came[name])/now.at.Sub(begin.at).Seconds())
			return now.at.Sub(begin.at) >= span && all[name] >= 0.8*rate
		})
	}
	return all
}

// rateOf returns how many items a second are sent to a flow.
func rateOf(flow string) float64 {
	if flow == "blocks" {
		return requestRate
	}
	return rate
}

// back waits until everything is as at a mark: frames in the pool, grants, receives and connections.
func (r *rig) back(to mark) {
	r.t.Helper()
	what := ""
	defer func() {
		if what != "" {
			r.t.Logf("not back: %s", what)
		}
	}()
	r.await("frames, grants, receives and connections to be back", func() bool { what = r.isBack(to); return what == "" })
}

// spareReceives is how many receives messages in flight may occupy. A lost peer's receives are more.
const spareReceives = 4

// spareGrants is by how many granted frames messages in flight may change the count. Each message
// has a grant of one frame.
func (r *rig) spareGrants() int64 {
	if r.method == "write" {
		return spareReceives
	}
	return 0
}

// isBack names something that differs from the mark. It is empty if nothing does.
func (r *rig) isBack(to mark) string {
	s := r.status()
	if n := s.Region.Owners["pool"]; n != to.pool {
		return "frames of the pool"
	}
	if n := s.Region.Owners["granted"]; n < to.held-r.spareGrants() || n > to.held+r.spareGrants() {
		return "grants"
	}
	if pairs(&s) != to.pair {
		return "queue pairs"
	}
	posted := int64(0)
	for i := range s.Flows {
		f := &s.Flows[i]
		if f.State != status.Running || !connected(f) {
			return f.Name
		}
		if f.Receives != nil {
			posted += f.Receives.Posted
		}
	}
	if posted < to.wait-spareReceives {
		return "receives"
	}
	return ""
}

// connected reports whether a flow has exactly its steady clients and peers.
func connected(f *status.Flow) bool {
	clients, peers := 0, 0
	if f.Receives != nil {
		for _, c := range f.Receives.Clients {
			if c.State != "disconnected" {
				clients++
			}
		}
		clients--
	}
	if f.Blocks != nil {
		clients = len(f.Blocks.Clients) - 1
	}
	if f.Sends != nil {
		for _, p := range f.Sends.Peers {
			if p.State != "connected" {
				peers++
			}
		}
	}
	return clients == 0 && peers == 0
}

// settle waits until everything that was sent has arrived or is counted as lost.
func (r *rig) settle() {
	r.t.Helper()
	r.await("all that was sent to arrive", func() bool {
		s := r.status()
		for i := range s.Flows {
			f := &s.Flows[i]
			if f.Sends != nil && f.State.Up() {
				if p := f.Sends.Peers[0]; p.Waiting+p.InFlight > 0 {
					return false
				}
			}
			if w := r.packets[f.Name]; w != nil && f.Packets+f.Waiting+sum(f.Dropped)+uint64(max(0, f.Missing)) < w.sent.Load()-w.before {
				return false
			}
		}
		return flowOf(r.t, s, "capture").Waiting == 0 && flowOf(r.t, s, "feed").Waiting == 0
	})
}

func sum(by map[string]uint64) (n uint64) {
	for _, k := range by {
		n += k
	}
	return n
}

// account compares what was sent with what arrived. It needs the last status, after all flows ended.
func (r *rig) account(s status.Daemon) {
	t := r.t
	t.Helper()
	r.captures.look("")
	r.records.look(true)
	capture, feed := flowOf(t, s, "capture"), flowOf(t, s, "feed")
	for name, f := range map[string]*status.Flow{"capture": &capture, "feed": &feed} {
		if sent := r.packets[name].sent.Load() - r.packets[name].before; f.Packets+sum(f.Dropped) != sent || f.Missing != 0 {
			t.Errorf("flow %s: %d packets were sent, %d received, and lost %v; %d are missing", name, sent, f.Packets, f.Dropped, f.Missing)
		}
	}
	lost := r.failed.sent - r.failed.durable // upper limit: packets lost by failed runs
	if n, least := r.captures.packets, r.failed.durable+capture.Packets; n < least || n > least+lost || r.captures.missing > sum(capture.Dropped)+lost {
		t.Errorf("the capture has %d packets and %d gaps; the flow had %d and lost %v, and failed runs of it %d of %d", n, r.captures.missing, capture.Packets, capture.Dropped,
			r.failed.durable, r.failed.sent)
	}
	sink := r.sinks.of("feed")
	if sink.Messages != feed.Packets || sink.Repeated != 0 {
		t.Errorf("the sink has %d packets of the feed, %d again; the flow had %d", sink.Messages, sink.Repeated, feed.Packets)
	}
	if n := r.sources.of("wal"); r.records.last[logSeed] != n.Messages || n.Done != n.Messages {
		t.Errorf("the log has messages up to %d; %d were sent, and %d acknowledged", r.records.last[logSeed], n.Messages, n.Done)
	}
	if n, came := r.sources.of("relay"), r.sinks.of("relay"); came.Last != n.Messages || n.Done != n.Messages {
		t.Errorf("the sink has messages of the relay up to %d; %d were sent, and %d acknowledged", came.Last, n.Messages, n.Done)
	}
	for name, p := range map[string]status.Peer{"feed": feed.Sends.Peers[1], "relay": flowOf(t, s, "relay").Sends.Peers[1]} {
		if p.Offered != p.Acknowledged+sum(p.Dropped)+p.Waiting+p.InFlight {
			t.Errorf("the other peer of %s: %+v does not add up", name, p)
		}
	}
}
