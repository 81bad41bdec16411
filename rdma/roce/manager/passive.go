package manager

import (
	"net/netip"

	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/rdma/roce/mad"
)

// Reasons to reject a request that package cm has no name for: the IBTA specification's numbers.
const (
	reasonTransport cm.Reason = 9
	reasonAlternate cm.Reason = 18
)

// asked takes a REQ.
func (m *machine) asked(w peerPath) {
	r := &m.in.Request
	if c := m.remotes[numbered{w.remote, r.GUID, m.in.Local}]; c != nil && c.peerPath == w && c.passive {
		m.askedAgain(c)
		return
	}
	if c := m.pairs[numbered{w.remote, r.GUID, r.QPN}]; c != nil {
		m.claimed(w, c)
		return
	}
	from, reason, info := m.judge(w, r)
	if reason != 0 {
		m.counts.add(rejected)
		m.decline(w, reason, info)
		return
	}
	port, _ := mad.PortOf(r.ServiceID)
	m.offer(w, m.listener(port, w.local.Addr()), from)
}

// judge says what is wrong with a request, and more about that.
func (m *machine) judge(w peerPath, r *mad.Request) (from mad.Address, reason cm.Reason, info []byte) {
	from, ok := mad.DecodeAddress(m.in.Private)
	port, tcp := mad.PortOf(r.ServiceID)
	switch {
	case r.Transport != 0 || r.Extended != 0:
		return from, reasonTransport, nil
	case r.GUID == 0 || r.QPN <= mad.QueuePair || m.in.Local == 0 || r.PKey&^0x8000 != wholePartition&^0x8000:
		return from, cm.ReasonUnsupported, nil
	case r.Primary.Remote != w.local:
		return from, cm.ReasonInvalidGID, w.local[:]
	case r.Primary.Local != w.remote:
		return from, cm.ReasonInvalidGID, nil
	case r.Alternate:
		return from, reasonAlternate, nil
	case r.MTU.Bytes() == 0:
		return from, cm.ReasonInvalidMTU, nil
	case r.MTU > m.mtu():
		return from, cm.ReasonInvalidMTU, []byte{byte(m.mtu())}
	case !tcp || m.listener(port, w.local.Addr()) == nil:
		return from, cm.ReasonNoListener, nil
	case !ok || from.To != w.local.Addr() || from.From.Addr() != w.remote.Addr():
		return from, cm.ReasonUnsupported, nil
	}
	return from, 0, nil
}

// offer gives a request to who listens.
func (m *machine) offer(w peerPath, l *listener, from mad.Address) {
	r := &m.in.Request
	var c *connection
	if len(l.requests) == cap(l.requests) {
		l.purge()
	}
	if len(l.requests) < cap(l.requests) {
		c = m.admit(w)
	}
	if c == nil {
		m.counts.add(full)
		m.decline(w, cm.ReasonNoResources, nil)
		return
	}
	c.state, c.passive, c.remote, c.transaction, c.guid, c.theirs = reqReceived, true, m.in.Local, m.in.Transaction, r.GUID, endpoint{r.QPN, r.PSN}
	c.mtu, c.retries, c.rnrRetries = r.MTU, r.Retries, r.RNRRetries
	c.timeout, c.flowLabel, c.class = r.Primary.AckTimeout, r.Primary.FlowLabel, r.Primary.TrafficClass
	c.cmRetries, c.response = r.CMRetries, min(r.LocalResponse, longestWait)
	c.peerState = said{append([]byte(nil), m.in.Private[mad.AddressBytes:]...), r.Responder, r.Initiator}
	c.place = cm.DeviceAddress{Device: l.device, Port: 1, Local: netip.AddrPortFrom(w.local.Addr(), l.port), Remote: from.From}
	m.know(c)
	m.timers.set(c, m.now+instant(mad.Duration(m.config.Service)))
	l.requests <- c
}

// askedAgain: the peer had no answer, or our answer was lost.
func (m *machine) askedAgain(c *connection) {
	m.counts.add(duplicate)
	switch c.state {
	case reqReceived:
		m.hold(c, mad.AboutREQ)
	case repSent, repWaits:
		m.repeat(c)
	case timeWait:
		m.decline(c.peerPath, cm.ReasonStale, nil)
	}
}

// decline answers a request with no.
func (m *machine) decline(w peerPath, reason cm.Reason, info []byte) {
	message := mad.Message{Kind: mad.REJ, Transaction: m.in.Transaction, Remote: m.in.Local, About: mad.AboutREQ, Reason: uint16(reason), InfoBytes: uint8(len(info))}
	copy(message.Info[:], info)
	m.post(w, &message)
}

// reject says no to the peer of a connection.
func (m *machine) reject(c *connection, about mad.About, reason cm.Reason, private []byte) {
	message := mad.Message{Kind: mad.REJ, Transaction: c.transaction, Local: c.local, Remote: c.remote, About: about, Reason: uint16(reason), Private: private}
	if reason == cm.ReasonTimeout {
		message.InfoBytes = uint8(len(be.AppendUint64(message.Info[:0], m.guid)))
	}
	m.post(c.peerPath, &message)
}

// accept answers a request; false: it is over by now. The queue pair is ready.
func (m *machine) accept(c *connection, e *cm.End, ours endpoint) bool {
	if c.state != reqReceived {
		return false
	}
	c.state, c.queue, c.ours = repSent, e.Queue, ours
	r := mad.Reply{QPN: ours.qpn, PSN: ours.psn, Responder: e.RemoteReads, Initiator: e.Reads, AckDelay: ackDelay, RNRRetries: e.RNRRetries,
		Shared: e.Queue.Config().Shared != nil, GUID: m.guid}
	c.limit = m.now + instant(HalfOpenTime)
	m.say(c, &mad.Message{Kind: mad.REP, Reply: r, Private: e.Private}, c.cmRetries, min(m.config.patience(c.response), instant(HalfOpenTime)))
	return true
}

// ready takes an RTU.
func (m *machine) ready(c *connection) {
	switch {
	case c.state == repSent || c.state == repWaits:
		m.proven(c)
		m.pair(c)
		c.state, c.limit = connected, never
		m.counts.add(established)
		m.timers.set(c, never)
		c.tell(answer{event: cm.Established})
	case c.state == connected && c.probe.under:
		m.alive(c)
	case c.state == connected && c.passive:
		m.counts.add(duplicate)
	default:
		m.counts.add(unexpected)
	}
}

// listener is who listens on a port of an address: who names the address, before who takes all.
func (m *machine) listener(port uint16, on netip.Addr) (found *listener) {
	for _, l := range m.ports[port] {
		switch {
		case l.at.Addr() == on:
			return l
		case l.takes(on):
			found = l
		}
	}
	return found
}

// takes says whether an unspecified address stands for another one: that of IPv6 for all.
func (l *listener) takes(on netip.Addr) bool {
	return l.at.Addr() == netip.IPv6Unspecified() || l.at.Addr() == netip.IPv4Unspecified() && on.Is4()
}
