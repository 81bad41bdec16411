package manager

import (
	"crypto/rand"
	"encoding/binary"

	"github.com/unifiedd/unifiedd/internal/addrlimit"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/rdma/roce/mad"
)

// machine is the protocol: messages and the time go in, messages and what happened come out. The manager's lock guards it.
type machine struct {
	config   Config
	guid     uint64 // of our card
	mtu      func() rdma.MTU
	now      instant
	locals   map[uint32]*connection   // by our identifier
	remotes  map[numbered]*connection // by the peer's
	pairs    map[numbered]*connection // by the peer's queue pair
	ports    map[uint16][]*listener
	timers   timers
	waits    []*connection               // in time-wait, the oldest first
	halfOpen *addrlimit.Set[*connection] // of peers that have not proven that they hear us
	out      []datagram                  // to be sent
	over     []*connection               // whose program is to be told
	in       mad.Message
	counts   counts
}

// datagram is a message to be sent.
type datagram struct {
	way   peerPath
	kind  mad.Kind
	bytes [mad.Size]byte
}

// maxOut is how many messages may wait to be sent.
const maxOut = 512

func newMachine(c Config, guid uint64, mtu func() rdma.MTU) *machine {
	return &machine{config: c, guid: guid, mtu: mtu, locals: map[uint32]*connection{}, remotes: map[numbered]*connection{},
		pairs: map[numbered]*connection{}, ports: map[uint16][]*listener{}, halfOpen: addrlimit.New[*connection](MaxHalfOpen, MaxHalfOpenPerAddress)}
}

// random is from the system's generator, which does not fail.
func random() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return binary.NativeEndian.Uint64(b[:])
}

// add makes a connection with an identifier of its own; nil: there are too many.
func (m *machine) add(w peerPath) *connection {
	if len(m.locals)-len(m.waits) >= m.config.Connections {
		return nil
	}
	c := &connection{peerPath: w, at: -1, deadline: never, limit: never, answers: make(chan answer, 1), done: make(chan struct{}), settled: make(chan struct{}),
		cmRetries: m.config.Retries, response: m.config.Response}
	for c.local == 0 || m.locals[c.local] != nil {
		c.local = uint32(random())
	}
	m.locals[c.local] = c
	return c
}

// know notes what the peer calls the connection.
func (m *machine) know(c *connection) { m.remotes[numbered{c.peerPath.remote, c.guid, c.remote}] = c }

// pair notes the queue pair of a peer that has proven that it hears us. One that it had in another connection that stands is no longer in that.
func (m *machine) pair(c *connection) {
	key := numbered{c.peerPath.remote, c.guid, c.theirs.qpn}
	if other := m.pairs[key]; other != nil && other.state == connected {
		m.hangUp(other, cm.ErrDisconnected)
	}
	m.pairs[key] = c
}

// remove forgets a connection.
func (m *machine) remove(c *connection) {
	c.state = idle
	m.timers.set(c, never)
	m.proven(c)
	delete(m.locals, c.local)
	for all, key := range map[*map[numbered]*connection]numbered{&m.remotes: {c.peerPath.remote, c.guid, c.remote}, &m.pairs: {c.peerPath.remote, c.guid, c.theirs.qpn}} {
		if (*all)[key] == c {
			delete(*all, key)
		}
	}
}

// receive takes a message that came.
func (m *machine) receive(w peerPath, b []byte) {
	if why := m.in.Decode(b); why != mad.WellFormed {
		m.counts.malformed[why]++
		return
	}
	m.counts.received[m.in.Kind.Index()]++
	switch m.in.Kind {
	case mad.REQ:
		m.asked(w)
		return
	case mad.SIDRREQ:
		m.post(w, &mad.Message{Kind: mad.SIDRREP, Transaction: m.in.Transaction, Local: m.in.Local, Status: sidrUnsupported, ServiceID: m.in.ServiceID})
		return
	}
	c := m.find(w)
	if c == nil {
		m.stray(w)
		return
	}
	switch m.in.Kind {
	case mad.REP:
		m.replied(c)
	case mad.RTU:
		m.ready(c)
	case mad.REJ:
		m.refused(c)
	case mad.MRA:
		m.delayed(c)
	case mad.DREQ:
		m.parted(c)
	case mad.DREP:
		m.released(c)
	default:
		m.counts.add(unexpected)
	}
}

// sidrUnsupported says that there is no such service of datagrams: IB_SIDR_UNSUPPORTED.
const sidrUnsupported = 1

// find is the connection that a message names, from its peer.
func (m *machine) find(w peerPath) *connection {
	c := m.locals[m.in.Remote]
	if m.in.Kind == mad.REJ && m.in.Remote == 0 { // of one who asked and had no answer: it does not know our identifier
		if c = m.remotes[numbered{w.remote, binary.BigEndian.Uint64(m.in.Info[:]), m.in.Local}]; c != nil && m.established(c) {
			return nil // it has had an answer: somebody else sends this
		}
	}
	switch {
	case c == nil || c.peerPath != w:
		return nil
	case c.remote == m.in.Local, c.remote == 0:
		return c
	case m.in.Kind == mad.REJ && m.in.Local == 0 && !c.passive: // of one who has refused without making a connection
		return c
	}
	return nil
}

// established says that both sides know each other's identifiers.
func (m *machine) established(c *connection) bool {
	return c.state == connected || c.state == dreqSent || c.state == timeWait
}

// stray answers a message of no connection. A peer that ends one that we do not know is told that it has ended.
func (m *machine) stray(w peerPath) {
	m.counts.add(unmatched)
	if m.in.Kind == mad.DREQ {
		m.post(w, &mad.Message{Kind: mad.DREP, Transaction: m.in.Transaction, Local: m.in.Remote, Remote: m.in.Local})
	}
}

// post has a message sent.
func (m *machine) post(w peerPath, message *mad.Message) {
	if len(m.out) >= maxOut {
		m.counts.add(crowded)
		return
	}
	m.out = append(m.out, datagram{way: w, kind: message.Kind})
	message.Encode(&m.out[len(m.out)-1].bytes)
	m.counts.sent[message.Kind.Index()]++
}

// say has a message of a connection sent, which is said again until it is answered, or not at all where tries is 0.
func (m *machine) say(c *connection, message *mad.Message, tries uint8, wait instant) {
	message.Transaction, message.Local, message.Remote = c.transaction, c.local, c.remote
	message.Encode(&c.last)
	c.kind, c.tries = message.Kind, tries
	m.repeat(c)
	at := never
	if wait != never {
		at = m.now + wait
	}
	m.timers.set(c, at)
}

// repeat has the last message of a connection sent.
func (m *machine) repeat(c *connection) {
	if len(m.out) >= maxOut {
		m.counts.add(crowded)
		return
	}
	m.out = append(m.out, datagram{c.peerPath, c.kind, c.last})
	m.counts.sent[c.kind.Index()]++
}

// tick does what is due.
func (m *machine) tick() {
	for m.timers.first() <= m.now {
		m.expire(m.timers[0])
	}
}

// expire says the last message again, or gives the peer up.
func (m *machine) expire(c *connection) {
	switch {
	case c.state == timeWait:
		m.endWait(c)
	case c.state == connected:
		m.unanswered(c)
	case c.tries > 0 && m.now < c.limit:
		c.tries--
		m.counts.add(resent)
		m.repeat(c)
		m.timers.set(c, min(c.limit, m.now+m.config.patience(c.response)))
	default:
		m.giveUp(c)
	}
}
