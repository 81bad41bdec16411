package cm

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/rdma/roce/mad"
)

// noLID stands for a local identifier, which Ethernet does not have.
const noLID = 0xffff

// sendREQ sends a REQ.
func (m *machine) sendREQ(c *connection, e *cm.End, from mad.Address, port uint16) {
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
	m.sendRetried(c, &message, m.config.Retries, m.config.responseTimeout(c.response))
}

const (
	psnMask        = 1<<24 - 1
	wholePartition = 0xffff // P_Key
	hopLimit       = 64
	// ackDelay is the device's rdma.Capabilities.LocalAcknowledgement. A test compares them.
	ackDelay = 15
)

// receiveREP processes a REP.
func (m *machine) receiveREP(c *connection) {
	switch c.state {
	case reqSent, reqWaits:
		m.storeREP(c)
	case repReceived: // our program is not ready yet
		m.counts.add(duplicate)
		m.sendMRA(c, mad.AboutREP)
	case connected, dreqSent, timeWait:
		if c.passive {
			m.counts.add(unexpected)
			return
		}
		m.counts.add(duplicate)
		if c.state == connected && c.kind == mad.RTU {
			m.retransmit(c)
		}
	default:
		m.counts.add(unexpected)
	}
}

// storeREP stores the peer's queue pair from a REP.
func (m *machine) storeREP(c *connection) {
	r := &m.in.Reply
	c.remote, c.guid, c.theirs = m.in.Local, r.GUID, endpoint{r.QPN, r.PSN}
	key := remoteKey{c.peerPath.remote, c.guid, c.theirs.qpn}
	if other := m.pairs[key]; other != nil && other != c {
		m.counts.add(stale)
		m.sendREJ(c, mad.AboutREP, cm.ReasonStale, nil)
		c.tell(answer{event: cm.Rejected, reason: cm.ReasonStale})
		m.enterTimeWait(c)
		return
	}
	m.indexRemote(c)
	m.indexPair(c)
	c.rnrRetries, c.timeout = r.RNRRetries, mad.AckTimeout(r.AckDelay, m.config.Lifetime)
	c.peerState = remoteEnd{append([]byte(nil), m.in.Private...), r.Responder, r.Initiator}
	c.state = repReceived
	m.timers.set(c, never)
	c.tell(answer{event: cm.ConnectResponse, said: c.peerState})
}

// sendRTU sends the RTU after our queue pair is ready. It returns false if the connection has
// ended. From now on, the end of the connection puts the queue pair into ERR. Before, the program
// owns the queue pair and may use it for another connection.
func (m *machine) sendRTU(c *connection, q rdma.QueuePair) bool {
	if c.state != repReceived {
		return false
	}
	c.state, c.queue = connected, q
	m.counts.add(established)
	m.sendRetried(c, &mad.Message{Kind: mad.RTU}, 0, never)
	return true
}

// sendMRA sends an MRA: the peer must wait.
func (m *machine) sendMRA(c *connection, about mad.About) {
	m.post(c.peerPath, &mad.Message{Kind: mad.MRA, Transaction: c.transaction, Local: c.local, Remote: c.remote, About: about, Timeout: m.config.Service})
}

// receiveMRA processes an MRA: the peer has our message and needs time.
func (m *machine) receiveMRA(c *connection) {
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
	m.timers.set(c, m.now+m.config.responseTimeout(m.in.Timeout))
}

// path returns the address that our queue pair needs to reach the peer's.
func (c *connection) path() rdma.Address {
	return rdma.Address{GID: c.peerPath.remote, GIDIndex: c.peerPath.place, TrafficClass: c.class, FlowLabel: c.flowLabel, Port: 1}
}

// route implements cm.Route.
type route struct {
	manager *Manager
	step    string
	path    peerPath
	place   cm.DeviceAddress
	class   uint8
	once    sync.Once // of its end
}

// Resolve finds the local address that leads to a peer, and the route to it.
func (m *Manager) Resolve(ctx context.Context, p cm.Path) (cm.Route, error) {
	p.To = netip.AddrPortFrom(p.To.Addr().Unmap().WithZone(""), p.To.Port())
	r := &route{manager: m, step: fmt.Sprintf("connect to %v through %v", p.To, m.device), class: p.Service}
	if err := r.resolve(ctx, p); err != nil {
		return nil, fmt.Errorf("%s: find the route: %w", r.step, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(); err != nil {
		return nil, err
	}
	m.held++
	return r, nil
}

func (r *route) resolve(ctx context.Context, p cm.Path) error {
	m := r.manager
	table, err := m.device.GIDs(1)
	if err != nil {
		return err
	}
	if from := p.From.Unmap().WithZone(""); from.IsValid() && !from.IsUnspecified() {
		table = slices.DeleteFunc(table, func(e rdma.GIDEntry) bool { return e.GID.Addr() != from })
	}
	local, err := rdma.ChooseGID(table, p.To.Addr())
	if err != nil {
		return err
	}
	r.path = peerPath{uint16(local.Index), local.GID, rdma.GIDOf(p.To.Addr())}
	source := uint16(firstPort + random()%(1<<16-firstPort))
	r.place = cm.DeviceAddress{Device: m.device.Name(), Port: 1, Local: netip.AddrPortFrom(local.GID.Addr(), source), Remote: p.To}
	return r.look(ctx)
}

// look finds the link-layer address of the peer.
func (r *route) look(ctx context.Context) error {
	m := r.manager
	m.mu.Lock()
	err := m.usable()
	var l *cachedHandle
	if err == nil {
		l, err = m.gsi.handles.find(r.path, true)
	}
	m.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case <-l.found:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if l.err != nil {
		return fmt.Errorf("%w: %w", &cm.Error{Step: "find the device", Event: cm.AddressError, Kind: cm.ErrUnreachable, Errno: unix.EHOSTUNREACH}, l.err)
	}
	return nil
}

func (r *route) Address() cm.DeviceAddress { return r.place }

func (r *route) Prepare(q rdma.QueuePair, access rdma.Access) error { return bringToInit(q, access) }

// Connect sends a REQ, and brings the queue pair to RTS with the values of the REP.
func (r *route) Connect(ctx context.Context, e cm.End) (cm.Conn, error) {
	err := e.Check()
	if err == nil {
		err = checkPrivate(e.Private, cm.MostToConnect)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.step, err)
	}
	c, err := r.ask(&e)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.step, err)
	}
	if err := r.connect(ctx, c, &e); err != nil {
		r.manager.end(c)
		return nil, err
	}
	return &conn{manager: r.manager, c: c}, nil
}

// ask starts a connection.
func (r *route) ask(e *cm.End) (c *connection, err error) {
	m := r.manager
	m.do(func(x *machine) {
		if err = m.usable(); err != nil {
			return
		}
		if c = x.add(r.path); c == nil {
			err = fmt.Errorf("the connection manager has %d connections, which is the most: end some", m.config.Connections)
			return
		}
		m.held++
		c.place, c.class = r.place, r.class
		x.sendREQ(c, e, mad.Address{From: r.place.Local, To: r.place.Remote.Addr()}, r.place.Remote.Port())
	})
	return c, err
}

func (r *route) connect(ctx context.Context, c *connection, e *cm.End) error {
	m := r.manager
	if _, err := m.await(ctx, c, r.step, cm.ConnectResponse); err != nil {
		return err
	}
	if err := bringToRTS(c, e, c.ours); err != nil {
		return fmt.Errorf("%s: %w", r.step, err)
	}
	ok := false
	m.do(func(x *machine) { ok = x.sendRTU(c, e.Queue) })
	if !ok {
		return fmt.Errorf("%s: %w", r.step, m.why(c))
	}
	return nil
}

// Close releases the route.
func (r *route) Close() error {
	r.once.Do(func() {
		r.manager.mu.Lock()
		defer r.manager.mu.Unlock()
		r.manager.held--
	})
	return nil
}
