package cm

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/addrlimit"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/rdma/roce/mad"
)

// connection is a connection in any state, including time-wait. The manager's lock guards all
// fields that do not say otherwise.
type connection struct {
	state         state
	passive       bool
	peerPath      peerPath
	local, remote uint32 // communication IDs
	transaction   uint64
	guid          uint64 // of the peer's card
	place         cm.DeviceAddress
	peerState     remoteEnd
	ours, theirs  endpoint
	mtu           rdma.MTU
	retries       uint8 // of our packets
	rnrRetries    uint8
	timeout       uint8 // for ACKs of our packets
	flowLabel     uint32
	class         uint8 // traffic class
	cmRetries     uint8
	response      uint8 // the peer's response time

	last     [mad.Size]byte // the last message, for retransmission
	kind     mad.Kind       // of it
	tries    uint8          // retransmissions left
	deadline instant
	limit    instant // when a half-open connection ends, even if retransmissions are left
	// probe is the state of the query whether the peer still has the connection.
	probe probe
	at    int // index in timers

	answers    chan answer   // the result of the current step
	done       chan struct{} // closed when the connection has ended and the queue pair is in ERR
	confirmed  chan struct{} // closed when the peer has confirmed the end, or its retransmissions are used up
	queue      rdma.QueuePair
	cause      error // why it has ended
	doneClosed bool  // done is closed or about to be
}

// endpoint is the queue pair of one side, and the number of the first packet that it expects. Each
// side chooses the number that the other begins with.
type endpoint struct{ qpn, psn uint32 }

// remoteEnd is what the peer has announced, from our point of view.
type remoteEnd struct {
	private            []byte
	reads, remoteReads uint8
}

// answer is the result of a step.
type answer struct {
	event  cm.EventKind
	reason cm.Reason
	silent bool // the peer did not answer
	said   remoteEnd
}

// tell ends the current step.
func (c *connection) tell(a answer) {
	select {
	case c.answers <- a:
	default: // no call waits for the step now
	}
}

// conn implements cm.Conn.
type conn struct {
	manager *Manager
	c       *connection
	once    sync.Once
}

func (c *conn) Private() []byte           { return c.c.peerState.private }
func (c *conn) Address() cm.DeviceAddress { return c.c.place }
func (c *conn) Done() <-chan struct{}     { return c.c.done }
func (c *conn) Err() error                { return c.manager.why(c.c) }

// Close waits at most a second for the peer's answer. After that the DREQ is still retransmitted
// while the manager is open.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.manager.end(c.c)
		<-c.c.done
		limit := time.NewTimer(closeTimeout)
		defer limit.Stop()
		select {
		case <-c.c.confirmed:
		case <-c.manager.ended:
		case <-limit.C:
		}
	})
	return nil
}

// Limits of half-open connections. The peer of a half-open connection has not proven that it
// receives our messages: an RTU or an MRA proves it, because it names our communication ID.
// SECURITY.md states them.
const (
	// maxHalfOpen bounds the half-open connections of all addresses together.
	maxHalfOpen = 128
	// maxHalfOpenPerAddress bounds those of one IPv4 address or IPv6 network of 64 bits.
	maxHalfOpenPerAddress = 32
	// HalfOpenTime is how long a peer may take to send the RTU. (Config.Service bounds how long a program may take to accept.)
	HalfOpenTime = 10 * time.Second
	// halfOpenDREQs is how often a DREQ is sent to such a peer when its connection ends.
	halfOpenDREQs = 3
)

// admit makes a connection for a REQ. If too many are half-open, the oldest ends. It returns nil if
// there are too many connections.
func (m *machine) admit(w peerPath) *connection {
	host := addrlimit.Host(w.remote.Addr())
	if limit, rivals := m.halfOpen.Full(host); limit != addrlimit.None {
		m.counts.add(map[addrlimit.Limit]counter{addrlimit.Network: addressLimit, addrlimit.All: halfOpenLimit}[limit])
		m.endHalfOpen(rivals[0])
	}
	c := m.add(w)
	if c != nil {
		m.halfOpen.Add(c, host)
	}
	return c
}

// proven records that the peer has named our communication ID.
func (m *machine) proven(c *connection) { m.halfOpen.Remove(c) }

// endHalfOpen ends a half-open connection.
func (m *machine) endHalfOpen(c *connection) {
	about := mad.AboutREQ
	if c.state != reqReceived {
		about = mad.AboutREP
	}
	m.sendREJ(c, about, cm.ReasonNoResources, nil)
	m.enterTimeWait(c)
	a := answer{event: cm.ConnectError}
	err := &cm.Error{Step: "connection", Event: cm.ConnectError, Kind: cm.ErrUnreachable, Errno: unix.EBUSY}
	m.finish(c, err)
	c.tell(a)
}

// purge removes ended requests of a listener whose program accepts none.
func (l *listener) purge() {
	for range len(l.requests) {
		select {
		case c := <-l.requests:
			if !c.doneClosed {
				l.requests <- c
			}
		default: // the program has accepted it
		}
	}
}

// A REQ may name a remote queue pair that is already connected. Either the peer has restarted, or
// the REQ is forged. To find out, the manager sends the peer a probe: a message that only the peer
// can answer, because the answer names both communication IDs. If the peer was the active side, the
// probe repeats the REP. A peer that has the connection answers by an RTU; a peer that does not
// answer is gone. If the peer was the passive side, the probe is a DREQ for another queue pair. A
// peer that has the connection ignores it; a peer that does not have it answers by a DREP. Linux
// does both: cm_dup_rep_handler and cm_dreq_handler in drivers/infiniband/core/cm.c.
const (
	// ProbeTries is the number of messages of a probe.
	ProbeTries = 3
	// ProbeWait is how long to wait for each answer.
	ProbeWait = time.Second
	// ProbeRest is the time from the end of a probe to the start of the next one of the same
	// connection.
	ProbeRest = 5 * time.Second
	// RestartLimit bounds how long the manager refuses a peer that has restarted with the same
	// queue pair: ProbeRest, one probe, and time-wait.
	RestartLimit = ProbeRest + ProbeTries*ProbeWait + 9*time.Second
)

// probe is a query to the peer of a connection whether it still has the connection.
type probe struct {
	running bool // it is running
	tries   uint8
	id      uint64  // transaction ID of the DREQ
	after   instant // when the next may begin
}

// probePeer processes a REQ that names the queue pair of connection c. c stays until the manager
// knows that its peer is gone.
func (m *machine) probePeer(w peerPath, c *connection) {
	m.counts.add(stale)
	m.refuseREQ(w, cm.ReasonStale, nil)
	switch {
	case c.state == dreqSent: // our DREQ serves as the probe
		c.tries = 0
		m.timers.set(c, min(c.deadline, m.now+ProbeTries*instant(ProbeWait)))
	case c.state != connected || c.probe.running: // it has ended, is being set up, or is being probed
	case m.now < c.probe.after:
		m.counts.add(probesHeld)
	default:
		m.counts.add(probes)
		c.probe = probe{running: true, tries: ProbeTries, id: random()}
		m.sendProbe(c)
	}
}

// sendProbe sends one message of a probe.
func (m *machine) sendProbe(c *connection) {
	c.probe.tries--
	if c.passive {
		m.retransmit(c)
	} else {
		m.post(c.peerPath, &mad.Message{Kind: mad.DREQ, Transaction: c.probe.id, Local: c.local, Remote: c.remote})
	}
	m.timers.set(c, m.now+instant(ProbeWait))
}

// probeTimedOut handles a message of a probe without an answer in time.
func (m *machine) probeTimedOut(c *connection) {
	switch {
	case c.probe.tries > 0:
		m.sendProbe(c)
	case c.passive:
		m.probeFailed(c)
	default:
		m.probeAnswered(c)
	}
}

// probeAnswered ends a probe: the peer still has the connection.
func (m *machine) probeAnswered(c *connection) {
	m.counts.add(probesAlive)
	c.probe = probe{after: m.now + instant(ProbeRest)}
	m.timers.set(c, never)
}

// probeFailed ends a connection that the peer no longer has. It sends one DREQ, in case the peer was only
// slow.
func (m *machine) probeFailed(c *connection) {
	m.counts.add(probesGone)
	m.post(c.peerPath, &mad.Message{Kind: mad.DREQ, Transaction: random(), Local: c.local, Remote: c.remote, RemoteQPN: c.theirs.qpn})
	m.enterTimeWait(c)
	m.finish(c, &cm.Error{Step: "connection", Event: cm.Disconnected, Kind: cm.ErrDisconnected})
}
