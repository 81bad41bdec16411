package cm

import (
	"encoding/binary"

	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/rdma/roce/mad"
)

var be = binary.BigEndian

// disconnect ends a connection from our side, in any state.
func (m *machine) disconnect(c *connection, why error) {
	switch c.state {
	case idle, dreqSent, timeWait:
		return
	case reqReceived:
		m.sendREJ(c, mad.AboutREQ, cm.ReasonConsumer, nil)
		m.enterTimeWait(c)
	case repReceived:
		m.sendREJ(c, mad.AboutREP, cm.ReasonConsumer, nil)
		m.enterTimeWait(c)
	case reqSent, reqWaits:
		m.sendREJ(c, mad.AboutREQ, cm.ReasonTimeout, nil)
		m.enterTimeWait(c)
	default: // also before the RTU: the peer may be connected
		tries := c.cmRetries
		if m.halfOpen.Remove(c) {
			tries = min(tries, halfOpenDREQs)
		}
		c.state, c.limit = dreqSent, never
		c.transaction = random()
		m.sendRetried(c, &mad.Message{Kind: mad.DREQ, RemoteQPN: c.theirs.qpn}, tries, m.config.responseTimeout(c.response))
	}
	m.finish(c, why)
}

// refuse refuses a request.
func (m *machine) refuse(c *connection, why []byte) {
	if c.state == reqReceived {
		m.sendREJ(c, mad.AboutREQ, cm.ReasonConsumer, why)
		m.enterTimeWait(c)
	}
}

// finish reports the end of a connection to the program, once.
func (m *machine) finish(c *connection, why error) {
	if c.doneClosed {
		return
	}
	c.doneClosed = true
	if c.cause == nil {
		c.cause = why
	}
	m.over = append(m.over, c)
}

// receiveREJ processes a REJ.
func (m *machine) receiveREJ(c *connection) {
	a := answer{event: cm.Rejected, reason: cm.Reason(min(m.in.Reason, 255)), said: remoteEnd{private: append([]byte(nil), m.in.Private...)}}
	switch c.state {
	case reqSent, reqWaits:
		m.enterTimeWait(c)
	case reqReceived, repSent, repWaits, repReceived:
		m.enterTimeWait(c)
	case connected:
		m.enterTimeWait(c)
		m.finish(c, &cm.Error{Step: "connection", Event: cm.Disconnected, Kind: cm.ErrDisconnected, Reason: a.reason})
		return
	case dreqSent:
		m.enterTimeWait(c)
		return
	default:
		m.counts.add(unexpected)
		return
	}
	m.finish(c, a.failure("connection"))
	c.tell(a)
}

// receiveDREQ processes a DREQ.
func (m *machine) receiveDREQ(c *connection) {
	if c.ours.qpn != m.in.RemoteQPN {
		m.counts.add(unexpected)
		return
	}
	switch c.state {
	case connected, repSent, repWaits, dreqSent, repReceived:
	case timeWait:
		m.counts.add(duplicate)
	default:
		m.counts.add(unexpected)
		return
	}
	m.post(c.peerPath, &mad.Message{Kind: mad.DREP, Transaction: m.in.Transaction, Local: c.local, Remote: c.remote})
	if c.state != timeWait {
		m.enterTimeWait(c)
		a := answer{event: cm.Disconnected}
		m.finish(c, a.failure("connection"))
		c.tell(a)
	}
}

// receiveDREP processes a DREP.
func (m *machine) receiveDREP(c *connection) {
	switch {
	case c.state == dreqSent:
		m.enterTimeWait(c)
	case c.state == connected && c.probe.running && !c.passive && m.in.Transaction == c.probe.id:
		m.probeFailed(c)
	default:
		m.counts.add(unexpected)
	}
}

// timeOut ends a connection whose peer does not answer.
func (m *machine) timeOut(c *connection) {
	m.counts.add(givenUp)
	a := answer{event: cm.Unreachable, silent: true}
	switch c.state {
	case reqSent, reqWaits, reqReceived:
		m.sendREJ(c, mad.AboutREQ, cm.ReasonTimeout, nil)
	case repSent, repWaits:
		m.sendREJ(c, mad.AboutREP, cm.ReasonTimeout, nil)
	}
	m.enterTimeWait(c)
	m.finish(c, a.failure("connection"))
	c.tell(a)
}

// enterTimeWait puts a connection into time-wait, in which the manager recognises late messages. It
// removes the oldest one if there are too many.
func (m *machine) enterTimeWait(c *connection) {
	c.state = timeWait
	m.proven(c)
	close(c.confirmed)
	m.timers.set(c, m.now+instant(mad.Duration(min(max(c.timeout, m.config.Lifetime+1), longestWait))))
	m.waits = append(m.waits, c)
	if len(m.waits) > m.config.Connections {
		m.counts.add(cut)
		m.leaveTimeWait(m.waits[0])
	}
}

// longestWait bounds the time-wait that a peer can cause: 8.6 s.
const longestWait = 21

// leaveTimeWait removes a connection after time-wait.
func (m *machine) leaveTimeWait(c *connection) {
	for i, other := range m.waits {
		if other == c {
			m.waits = append(m.waits[:i], m.waits[i+1:]...)
			break
		}
	}
	m.remove(c)
}
