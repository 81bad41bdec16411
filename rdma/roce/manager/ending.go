package manager

import (
	"encoding/binary"

	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/rdma/roce/mad"
)

var be = binary.BigEndian

// hangUp ends a connection from our side, in any state.
func (m *machine) hangUp(c *connection, why error) {
	switch c.state {
	case idle, dreqSent, timeWait:
		return
	case reqReceived:
		m.reject(c, mad.AboutREQ, cm.ReasonConsumer, nil)
		m.wait(c)
	case repReceived:
		m.reject(c, mad.AboutREP, cm.ReasonConsumer, nil)
		m.wait(c)
	case reqSent, reqWaits:
		m.reject(c, mad.AboutREQ, cm.ReasonTimeout, nil)
		m.wait(c)
	default: // also before the RTU: the peer may be connected
		tries := c.cmRetries
		if m.halfOpen.Remove(c) {
			tries = min(tries, halfOpenPartings)
		}
		c.state, c.limit = dreqSent, never
		c.transaction = random()
		m.say(c, &mad.Message{Kind: mad.DREQ, RemoteQPN: c.theirs.qpn}, tries, m.config.patience(c.response))
	}
	m.finish(c, why)
}

// turnDown refuses a request.
func (m *machine) turnDown(c *connection, why []byte) {
	if c.state == reqReceived {
		m.reject(c, mad.AboutREQ, cm.ReasonConsumer, why)
		m.wait(c)
	}
}

// finish reports the end of a connection to the program, once.
func (m *machine) finish(c *connection, why error) {
	if c.noticed {
		return
	}
	c.noticed = true
	if c.cause == nil {
		c.cause = why
	}
	m.over = append(m.over, c)
}

// refused processes a REJ.
func (m *machine) refused(c *connection) {
	a := answer{event: cm.Rejected, reason: cm.Reason(min(m.in.Reason, 255)), said: said{private: append([]byte(nil), m.in.Private...)}}
	switch c.state {
	case reqSent, reqWaits:
		m.wait(c)
	case reqReceived, repSent, repWaits, repReceived:
		m.wait(c)
	case connected:
		m.wait(c)
		m.finish(c, &cm.Error{Step: "connection", Event: cm.Disconnected, Kind: cm.ErrDisconnected, Reason: a.reason})
		return
	case dreqSent:
		m.wait(c)
		return
	default:
		m.counts.add(unexpected)
		return
	}
	m.finish(c, a.failure("connection"))
	c.tell(a)
}

// parted processes a DREQ.
func (m *machine) parted(c *connection) {
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
		m.wait(c)
		a := answer{event: cm.Disconnected}
		m.finish(c, a.failure("connection"))
		c.tell(a)
	}
}

// released processes a DREP.
func (m *machine) released(c *connection) {
	switch {
	case c.state == dreqSent:
		m.wait(c)
	case c.state == connected && c.probe.under && !c.passive && m.in.Transaction == c.probe.id:
		m.gone(c)
	default:
		m.counts.add(unexpected)
	}
}

// giveUp ends a connection whose peer does not answer.
func (m *machine) giveUp(c *connection) {
	m.counts.add(givenUp)
	a := answer{event: cm.Unreachable, silent: true}
	switch c.state {
	case reqSent, reqWaits, reqReceived:
		m.reject(c, mad.AboutREQ, cm.ReasonTimeout, nil)
	case repSent, repWaits:
		m.reject(c, mad.AboutREP, cm.ReasonTimeout, nil)
	}
	m.wait(c)
	m.finish(c, a.failure("connection"))
	c.tell(a)
}

// wait puts a connection into time-wait, in which late messages are recognised. The oldest one is
// removed if there are too many.
func (m *machine) wait(c *connection) {
	c.state = timeWait
	m.proven(c)
	close(c.settled)
	m.timers.set(c, m.now+instant(mad.Duration(min(max(c.timeout, m.config.Lifetime+1), longestWait))))
	m.waits = append(m.waits, c)
	if len(m.waits) > m.config.Connections {
		m.counts.add(cut)
		m.endWait(m.waits[0])
	}
}

// longestWait bounds the time-wait that a peer can cause: 8.6 s.
const longestWait = 21

// endWait removes a connection after time-wait.
func (m *machine) endWait(c *connection) {
	for i, other := range m.waits {
		if other == c {
			m.waits = append(m.waits[:i], m.waits[i+1:]...)
			break
		}
	}
	m.remove(c)
}
