package manager

import (
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/rdma/roce/mad"
)

// noLID stands in for local identifiers, which Ethernet has not.
const noLID = 0xffff

// ask asks the peer for a connection.
func (m *machine) ask(c *connection, e *cm.End, from mad.Address, port uint16) {
	c.state, c.transaction = reqSent, random()
	c.ours = endpoint{e.Queue.QPN(), uint32(random()) & psnMask}
	c.mtu, c.retries = m.mtu(), e.Retries
	c.timeout = mad.AckTimeout(ackDelay, m.config.Lifetime)
	r := mad.Request{ServiceID: mad.ServiceID(port), GUID: m.guid, QPN: c.ours.qpn, PSN: c.ours.psn, Responder: e.RemoteReads, Initiator: e.Reads,
		RemoteResponse: m.config.Response, LocalResponse: m.config.Response, Retries: e.Retries, RNRRetries: e.RNRRetries, PKey: wholePartition, MTU: c.mtu,
		CMRetries: m.config.Retries, Shared: e.Queue.Config().Shared != nil,
		Primary: mad.Path{LocalLID: noLID, RemoteLID: noLID, Local: c.peerPath.local, Remote: c.peerPath.remote, FlowLabel: c.flowLabel, TrafficClass: c.class,
			HopLimit: hopLimit, AckTimeout: c.timeout}}
	message := mad.Message{Kind: mad.REQ, Request: r, Private: append(from.Append(nil), e.Private...)}
	m.say(c, &message, m.config.Retries, m.config.patience(c.response))
}

const (
	psnMask        = 1<<24 - 1
	wholePartition = 0xffff // P_Key
	hopLimit       = 64
	// ackDelay is ours: rdma.Capabilities.LocalAcknowledgement of the device, which a test compares.
	ackDelay = 15
)

// replied takes a REP.
func (m *machine) replied(c *connection) {
	switch c.state {
	case reqSent, reqWaits:
		m.accepted(c)
	case repReceived: // our program is not ready yet
		m.counts.add(duplicate)
		m.hold(c, mad.AboutREP)
	case connected, dreqSent, timeWait:
		if c.passive {
			m.counts.add(unexpected)
			return
		}
		m.counts.add(duplicate)
		if c.state == connected && c.kind == mad.RTU {
			m.repeat(c)
		}
	default:
		m.counts.add(unexpected)
	}
}

// accepted: the peer has a queue pair for ours.
func (m *machine) accepted(c *connection) {
	r := &m.in.Reply
	c.remote, c.guid, c.theirs = m.in.Local, r.GUID, endpoint{r.QPN, r.PSN}
	key := numbered{c.peerPath.remote, c.guid, c.theirs.qpn}
	if other := m.pairs[key]; other != nil && other != c {
		m.counts.add(stale)
		m.reject(c, mad.AboutREP, cm.ReasonStale, nil)
		c.tell(answer{event: cm.Rejected, reason: cm.ReasonStale})
		m.wait(c)
		return
	}
	m.know(c)
	m.pair(c)
	c.rnrRetries, c.timeout = r.RNRRetries, mad.AckTimeout(r.AckDelay, m.config.Lifetime)
	c.peerState = said{append([]byte(nil), m.in.Private...), r.Responder, r.Initiator}
	c.state = repReceived
	m.timers.set(c, never)
	c.tell(answer{event: cm.ConnectResponse, said: c.peerState})
}

// confirm tells the peer that our queue pair is ready; false: it is over by now. The queue pair is led to ERR at the end from now on: until then
// its program has it, and may ask again with it.
func (m *machine) confirm(c *connection, q rdma.QueuePair) bool {
	if c.state != repReceived {
		return false
	}
	c.state, c.queue = connected, q
	m.counts.add(established)
	m.say(c, &mad.Message{Kind: mad.RTU}, 0, never)
	return true
}

// hold asks the peer to wait.
func (m *machine) hold(c *connection, about mad.About) {
	m.post(c.peerPath, &mad.Message{Kind: mad.MRA, Transaction: c.transaction, Local: c.local, Remote: c.remote, About: about, Timeout: m.config.Service})
}

// delayed takes an MRA: the peer has our message, and takes a while.
func (m *machine) delayed(c *connection) {
	switch {
	case m.in.About == mad.AboutREQ && (c.state == reqSent || c.state == reqWaits):
		c.state = reqWaits
	case m.in.About == mad.AboutREP && (c.state == repSent || c.state == repWaits):
		c.state, c.limit = repWaits, never
		m.proven(c)
	default:
		m.counts.add(unexpected)
		return
	}
	m.timers.set(c, m.now+m.config.patience(m.in.Timeout))
}

// path is what our queue pair needs to know of the way to the peer's.
func (c *connection) path() rdma.Address {
	return rdma.Address{GID: c.peerPath.remote, GIDIndex: c.peerPath.place, TrafficClass: c.class, FlowLabel: c.flowLabel, Port: 1}
}
