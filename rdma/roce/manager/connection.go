package manager

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/addrlimit"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/rdma/roce/mad"
)

// connection is one that is on its way, is, or was lately. All is guarded by the manager's lock but what says otherwise.
type connection struct {
	state         state
	passive       bool
	peerPath      peerPath
	local, remote uint32 // identifiers
	transaction   uint64
	guid          uint64 // of the peer's card
	place         cm.DeviceAddress
	peerState     said
	ours, theirs  endpoint
	mtu           rdma.MTU
	retries       uint8 // for packets of ours
	rnrRetries    uint8
	timeout       uint8 // for acknowledgements of packets of ours
	flowLabel     uint32
	class         uint8 // traffic class
	cmRetries     uint8
	response      uint8 // how long the peer may take to answer

	last     [mad.Size]byte // message that is said again
	kind     mad.Kind       // of it
	tries    uint8          // how often it may be said again
	deadline instant
	limit    instant // when the peer of a half-open connection is given up, however often it was to be told
	probe    probe
	at       int // among the timers

	answers chan answer   // what the step under way waits for: one
	done    chan struct{} // closed when it is over, and the queue pair in ERR
	settled chan struct{} // closed when the peer has heard, or was given up
	queue   rdma.QueuePair
	cause   error // why it is over
	noticed bool  // done is closed, or about to be
}

// endpoint is what one side has of the connection: its queue pair, and the number of the first packet that it expects. A message says which
// the peer is to begin with, and not which the sender will.
type endpoint struct{ qpn, psn uint32 }

// said is what the peer says, as seen from here.
type said struct {
	private            []byte
	reads, remoteReads uint8
}

// answer is how a step ended.
type answer struct {
	event  cm.EventKind
	reason cm.Reason
	silent bool // nobody answered
	said   said
}

// tell ends the step under way.
func (c *connection) tell(a answer) {
	select {
	case c.answers <- a:
	default: // the step was given up
	}
}

// conn is a connection that its program has.
type conn struct {
	manager *Manager
	c       *connection
	once    sync.Once
}

func (c *conn) Private() []byte           { return c.c.peerState.private }
func (c *conn) Address() cm.DeviceAddress { return c.c.place }
func (c *conn) Done() <-chan struct{}     { return c.c.done }
func (c *conn) Err() error                { return c.manager.why(c.c) }

// Close waits at most a second for the peer's answer. What it did not hear is said again while the manager is open.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.manager.end(c.c)
		<-c.c.done
		limit := time.NewTimer(farewell)
		defer limit.Stop()
		select {
		case <-c.c.settled:
		case <-c.manager.ended:
		case <-limit.C:
		}
	})
	return nil
}

// Bounds of requests whose peers have not proven that they hear us: by an RTU or an MRA, which name an identifier that we have said to them. SECURITY.md
// states them.
const (
	// MaxHalfOpen is how many there may be of all addresses.
	MaxHalfOpen = 128
	// MaxHalfOpenPerAddress is how many of one address, or IPv6 network of 64 bits.
	MaxHalfOpenPerAddress = 32
	// HalfOpenTime is how long a peer may take to confirm that it is connected. (Config.Service bounds how long a program may take to accept.)
	HalfOpenTime = 10 * time.Second
	// halfOpenPartings is how often such a peer is told that its connection ends.
	halfOpenPartings = 3
)

// admit makes a connection for a REQ. Where there are too many that are half open, the oldest gives way. nil: there are too many connections.
func (m *machine) admit(w peerPath) *connection {
	host := addrlimit.Host(w.remote.Addr())
	if limit, rivals := m.halfOpen.Full(host); limit != addrlimit.None {
		m.counts.add(map[addrlimit.Limit]counter{addrlimit.Network: addressLimit, addrlimit.All: halfOpenLimit}[limit])
		m.displace(rivals[0])
	}
	c := m.add(w)
	if c != nil {
		m.halfOpen.Add(c, host)
	}
	return c
}

// proven: the peer has named our identifier.
func (m *machine) proven(c *connection) { m.halfOpen.Remove(c) }

// displace ends a connection that is half open.
func (m *machine) displace(c *connection) {
	about := mad.AboutREQ
	if c.state != reqReceived {
		about = mad.AboutREP
	}
	m.reject(c, about, cm.ReasonNoResources, nil)
	m.wait(c)
	a := answer{event: cm.ConnectError}
	err := &cm.Error{Step: "connection", Event: cm.ConnectError, Kind: cm.ErrUnreachable, Errno: unix.EBUSY}
	m.finish(c, err)
	c.tell(a)
}

// purge leaves requests out that are over, of a listener whose program takes none.
func (l *listener) purge() {
	for range len(l.requests) {
		select {
		case c := <-l.requests:
			if !c.noticed {
				l.requests <- c
			}
		default: // the program took it
		}
	}
}

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
