package cm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/rdma/roce/mad"
)

// Reasons to reject a request that package rdma/cm does not name, with the IBTA specification's numbers.
const (
	reasonTransport cm.Reason = 9
	reasonAlternate cm.Reason = 18
)

// receiveREQ processes a REQ.
func (m *machine) receiveREQ(w peerPath) {
	r := &m.in.Request
	if c := m.remotes[remoteKey{w.remote, r.GUID, m.in.Local}]; c != nil && c.peerPath == w && c.passive {
		m.receiveDuplicateREQ(c)
		return
	}
	if c := m.pairs[remoteKey{w.remote, r.GUID, r.QPN}]; c != nil {
		m.probePeer(w, c)
		return
	}
	from, reason, info := m.checkREQ(w, r)
	if reason != 0 {
		m.counts.add(rejected)
		m.refuseREQ(w, reason, info)
		return
	}
	port, _ := mad.PortOf(r.ServiceID)
	m.offer(w, m.listener(port, w.local.Addr()), from)
}

// checkREQ returns what is wrong with a request, and the additional information for the REJ.
func (m *machine) checkREQ(w peerPath, r *mad.Request) (from mad.Address, reason cm.Reason, info []byte) {
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

// offer passes a request to its listener.
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
		m.refuseREQ(w, cm.ReasonNoResources, nil)
		return
	}
	c.state, c.passive, c.remote, c.transaction, c.guid, c.theirs = reqReceived, true, m.in.Local, m.in.Transaction, r.GUID, endpoint{r.QPN, r.PSN}
	c.mtu, c.retries, c.rnrRetries = r.MTU, r.Retries, r.RNRRetries
	c.timeout, c.flowLabel, c.class = r.Primary.AckTimeout, r.Primary.FlowLabel, r.Primary.TrafficClass
	c.cmRetries, c.response = r.CMRetries, min(r.LocalResponse, longestWait)
	c.peerState = remoteEnd{append([]byte(nil), m.in.Private[mad.AddressBytes:]...), r.Responder, r.Initiator}
	c.place = cm.DeviceAddress{Device: l.device, Port: 1, Local: netip.AddrPortFrom(w.local.Addr(), l.port), Remote: from.From}
	m.indexRemote(c)
	m.timers.set(c, m.now+instant(mad.Duration(m.config.Service)))
	l.requests <- c
}

// receiveDuplicateREQ processes a repeated REQ: our answer was late or lost.
func (m *machine) receiveDuplicateREQ(c *connection) {
	m.counts.add(duplicate)
	switch c.state {
	case reqReceived:
		m.sendMRA(c, mad.AboutREQ)
	case repSent, repWaits:
		m.retransmit(c)
	case timeWait:
		m.refuseREQ(c.peerPath, cm.ReasonStale, nil)
	}
}

// refuseREQ sends a REJ without making a connection.
func (m *machine) refuseREQ(w peerPath, reason cm.Reason, info []byte) {
	message := mad.Message{Kind: mad.REJ, Transaction: m.in.Transaction, Remote: m.in.Local, About: mad.AboutREQ, Reason: uint16(reason), InfoBytes: uint8(len(info))}
	copy(message.Info[:], info)
	m.post(w, &message)
}

// sendREJ sends a REJ for a connection.
func (m *machine) sendREJ(c *connection, about mad.About, reason cm.Reason, private []byte) {
	message := mad.Message{Kind: mad.REJ, Transaction: c.transaction, Local: c.local, Remote: c.remote, About: about, Reason: uint16(reason), Private: private}
	if reason == cm.ReasonTimeout {
		message.InfoBytes = uint8(len(be.AppendUint64(message.Info[:0], m.guid)))
	}
	m.post(c.peerPath, &message)
}

// sendREP sends a REP. It returns false if the connection has ended. The queue pair is ready to
// receive.
func (m *machine) sendREP(c *connection, e *cm.End, ours endpoint) bool {
	if c.state != reqReceived {
		return false
	}
	c.state, c.queue, c.ours = repSent, e.Queue, ours
	r := mad.Reply{QPN: ours.qpn, PSN: ours.psn, Responder: e.RemoteReads, Initiator: e.Reads, AckDelay: ackDelay, RNRRetries: e.RNRRetries,
		Shared: e.Queue.Config().Shared != nil, GUID: m.guid}
	c.limit = m.now + instant(HalfOpenTime)
	m.sendRetried(c, &mad.Message{Kind: mad.REP, Reply: r, Private: e.Private}, c.cmRetries, min(m.config.responseTimeout(c.response), instant(HalfOpenTime)))
	return true
}

// receiveRTU processes an RTU.
func (m *machine) receiveRTU(c *connection) {
	switch {
	case c.state == repSent || c.state == repWaits:
		m.proven(c)
		m.indexPair(c)
		c.state, c.limit = connected, never
		m.counts.add(established)
		m.timers.set(c, never)
		c.tell(answer{event: cm.Established})
	case c.state == connected && c.probe.running:
		m.probeAnswered(c)
	case c.state == connected && c.passive:
		m.counts.add(duplicate)
	default:
		m.counts.add(unexpected)
	}
}

// listener returns the listener of a port and address. A listener for that address comes before a
// listener for all addresses.
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

// takes reports whether the listener's unspecified address includes an address: the unspecified
// IPv6 address includes all.
func (l *listener) takes(on netip.Addr) bool {
	return l.at.Addr() == netip.IPv6Unspecified() || l.at.Addr() == netip.IPv4Unspecified() && on.Is4()
}

// request implements cm.Request.
type request struct {
	manager *Manager
	c       *connection
	once    sync.Once // of Accept, Reject and Close
}

func (r *request) Private() []byte           { return r.c.peerState.private }
func (r *request) Address() cm.DeviceAddress { return r.c.place }
func (r *request) Peer() netip.AddrPort      { return r.c.place.Remote }

func (r *request) Reads() (ours, theirs uint8) { return r.c.peerState.reads, r.c.peerState.remoteReads }

func (r *request) Prepare(q rdma.QueuePair, access rdma.Access) error { return bringToInit(q, access) }

// Accept brings the queue pair to RTR, sends the REP and waits for the RTU.
func (r *request) Accept(ctx context.Context, e cm.End) (cm.Conn, error) {
	step := fmt.Sprintf("accept %v through %v", r.c.place.Remote, r.manager.device)
	if err := r.accept(ctx, step, e); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	r.once.Do(func() {})
	return &conn{manager: r.manager, c: r.c}, nil
}

func (r *request) accept(ctx context.Context, step string, e cm.End) error {
	e.Reads, e.RemoteReads = min(e.Reads, r.c.peerState.reads), min(e.RemoteReads, r.c.peerState.remoteReads)
	if err := errors.Join(e.Check(), checkPrivate(e.Private, cm.MostToAccept)); err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	ours := endpoint{e.Queue.QPN(), uint32(random()) & psnMask}
	if err := bringToRTS(r.c, &e, ours); err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	ok := false
	r.manager.do(func(x *machine) { ok = x.sendREP(r.c, &e, ours) })
	if !ok {
		return fmt.Errorf("%s: %w", step, r.manager.why(r.c))
	}
	_, err := r.manager.await(ctx, r.c, step, cm.Established)
	return err
}

// Reject refuses the request with private data of the program.
func (r *request) Reject(why []byte) error {
	err := checkPrivate(why, cm.MostToReject)
	if err != nil {
		err = fmt.Errorf("reject %v through %v: %w", r.c.place.Remote, r.manager.device, err)
	} else {
		r.manager.do(func(x *machine) { x.refuse(r.c, why) })
	}
	return errors.Join(err, r.Close())
}

// Close refuses the request unless it is answered.
func (r *request) Close() error {
	r.once.Do(func() { r.manager.end(r.c) })
	return nil
}

// listener implements cm.Listener.
type listener struct {
	manager  *Manager
	at       netip.AddrPort
	port     uint16
	device   string
	requests chan *connection
	done     chan struct{}
	once     sync.Once
}

// Listen implements cm.Manager.
func (m *Manager) Listen(at netip.AddrPort, backlog int) (cm.Listener, error) {
	if backlog < 1 {
		backlog = cm.DefaultBacklog
	}
	at = netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
	l := &listener{manager: m, at: at, port: at.Port(), device: m.device.Name(), requests: make(chan *connection, backlog), done: make(chan struct{})}
	if err := m.listen(l); err != nil {
		return nil, fmt.Errorf("listen on %v through %v: %w", at, m.device, err)
	}
	return l, nil
}

// firstPort is the first of the ports for listeners that name none.
const firstPort = 49152

func (m *Manager) listen(l *listener) error {
	if err := m.ours(l.at.Addr()); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(); err != nil {
		return err
	}
	x := m.machine
	for port := uint32(firstPort); l.port == 0; port++ {
		if port > 0xffff {
			return fmt.Errorf("no port is free: %w", unix.EADDRINUSE)
		}
		if len(x.ports[uint16(port)]) == 0 {
			l.port = uint16(port)
			l.at = netip.AddrPortFrom(l.at.Addr(), l.port)
		}
	}
	for _, other := range x.ports[l.port] {
		if other.at.Addr() == l.at.Addr() || other.takes(l.at.Addr()) || l.takes(other.at.Addr()) {
			return fmt.Errorf("%w (%v is listened on already: end that, or take another port)", unix.EADDRINUSE, other.at)
		}
	}
	x.ports[l.port] = append(x.ports[l.port], l)
	m.listeners = append(m.listeners, l)
	return nil
}

// ours refuses an address that is not the device's.
func (m *Manager) ours(a netip.Addr) error {
	if !a.IsValid() || a.IsUnspecified() {
		return nil
	}
	table, err := m.device.GIDs(1)
	if err != nil {
		return err
	}
	for _, e := range table {
		if e.GID.Addr() == a {
			return nil
		}
	}
	return fmt.Errorf("%w (the address is none of %v's)", unix.EADDRNOTAVAIL, m.device)
}

// Addr returns the address that it listens on.
func (l *listener) Addr() netip.AddrPort { return l.at }

// Accept skips requests that have ended in the meantime.
func (l *listener) Accept(ctx context.Context) (cm.Request, error) {
	for {
		select {
		case c := <-l.requests:
			if l.manager.take(c) {
				return &request{manager: l.manager, c: c}, nil
			}
		case <-l.done:
			return nil, fmt.Errorf("listen on %v through %v: %w", l.at, l.manager.device, cm.ErrClosed)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// take counts a request as open, unless it has ended.
func (m *Manager) take(c *connection) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.doneClosed {
		return false
	}
	m.held++
	return true
}

// Close ends listening.
func (l *listener) Close() error {
	l.once.Do(func() {
		m := l.manager
		m.do(func(x *machine) {
			same := func(o *listener) bool { return o == l }
			if x.ports[l.port] = slices.DeleteFunc(x.ports[l.port], same); len(x.ports[l.port]) == 0 {
				delete(x.ports, l.port)
			}
			m.listeners = slices.DeleteFunc(m.listeners, same)
			l.refuseAll(x)
		})
		close(l.done)
	})
	return nil
}

// refuseAll refuses the requests that the program has not accepted.
func (l *listener) refuseAll(x *machine) {
	for {
		select {
		case c := <-l.requests:
			x.disconnect(c, cm.ErrClosed)
		default:
			return
		}
	}
}
