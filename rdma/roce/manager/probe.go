package manager

import (
	"time"

	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/rdma/roce/mad"
)

// A REQ may claim the queue pair of a connection that stands: its peer has restarted, or somebody else has forged the REQ. Who sent it is not known, so
// the peer is asked by a message that only it can answer, since the answer names both identifiers. To the side that asked for the connection that is
// the REP again, which it answers by an RTU; where it is silent it has gone. To the side that was asked it is a DREQ of another queue
// pair, which it ignores; where it does not know the connection it answers by a DREP. Linux does both: cm_dup_rep_handler and
// cm_dreq_handler in drivers/infiniband/core/cm.c.
const (
	// ProbeTries is how often a peer is asked whether it still has a connection.
	ProbeTries = 3
	// ProbeWait is how long each answer is waited for.
	ProbeWait = time.Second
	// ProbeRest is from the end of one probe of a connection to when the next may begin.
	ProbeRest = 5 * time.Second
	// RestartLimit is how long a peer may be refused that has restarted with the same queue pair: a probe that has just ended, the next one, and time-wait.
	RestartLimit = ProbeRest + ProbeTries*ProbeWait + 9*time.Second
)

// probe is a question to the peer of a connection whether it still has it.
type probe struct {
	under bool // way
	tries uint8
	id    uint64  // transaction of the DREQ
	after instant // when the next may begin
}

// claimed takes a REQ with the queue pair of another connection. That stays until its peer is known to have gone.
func (m *machine) claimed(w peerPath, c *connection) {
	m.counts.add(stale)
	m.decline(w, cm.ReasonStale, nil)
	switch {
	case c.state == dreqSent: // the question is asked already
		c.tries = 0
		m.timers.set(c, min(c.deadline, m.now+ProbeTries*instant(ProbeWait)))
	case c.state != connected || c.probe.under: // it is over, or begins, or is being asked
	case m.now < c.probe.after:
		m.counts.add(probesHeld)
	default:
		m.counts.add(probes)
		c.probe = probe{under: true, tries: ProbeTries, id: random()}
		m.askPeer(c)
	}
}

// askPeer asks once.
func (m *machine) askPeer(c *connection) {
	c.probe.tries--
	if c.passive {
		m.repeat(c)
	} else {
		m.post(c.peerPath, &mad.Message{Kind: mad.DREQ, Transaction: c.probe.id, Local: c.local, Remote: c.remote})
	}
	m.timers.set(c, m.now+instant(ProbeWait))
}

// unanswered: the peer has not answered in time.
func (m *machine) unanswered(c *connection) {
	switch {
	case c.probe.tries > 0:
		m.askPeer(c)
	case c.passive:
		m.gone(c)
	default:
		m.alive(c)
	}
}

// alive: the peer has the connection still.
func (m *machine) alive(c *connection) {
	m.counts.add(probesAlive)
	c.probe = probe{after: m.now + instant(ProbeRest)}
	m.timers.set(c, never)
}

// gone ends a connection that its peer has no more. It is told once, in case that it was only silent.
func (m *machine) gone(c *connection) {
	m.counts.add(probesGone)
	m.post(c.peerPath, &mad.Message{Kind: mad.DREQ, Transaction: random(), Local: c.local, Remote: c.remote, RemoteQPN: c.theirs.qpn})
	m.wait(c)
	m.finish(c, &cm.Error{Step: "connection", Event: cm.Disconnected, Kind: cm.ErrDisconnected})
}
