package cm

import (
	"container/heap"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/addrlimit"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/rdma/roce/mad"
)

// machine is the protocol without I/O and clock: messages and the time go in, messages and events
// come out. The manager's lock guards it.
type machine struct {
	config  Config
	guid    uint64 // of our card
	mtu     func() rdma.MTU
	now     instant
	locals  map[uint32]*connection    // by our communication ID
	remotes map[remoteKey]*connection // by the peer's
	pairs   map[remoteKey]*connection // by the peer's queue pair
	ports   map[uint16][]*listener
	// timers is a heap of the connections with a deadline.
	timers   timers
	waits    []*connection               // in time-wait, the oldest first
	halfOpen *addrlimit.Set[*connection] // see maxHalfOpen
	out      []datagram                  // messages to send
	over     []*connection               // ended connections that their programs do not know of yet
	in       mad.Message
	counts   counts
}

// datagram is a message to send.
type datagram struct {
	path  peerPath
	kind  mad.Kind
	bytes [mad.Size]byte
}

// maxOut bounds the messages that wait to be sent.
const maxOut = 512

func newMachine(c Config, guid uint64, mtu func() rdma.MTU) *machine {
	return &machine{config: c, guid: guid, mtu: mtu, locals: map[uint32]*connection{}, remotes: map[remoteKey]*connection{},
		pairs: map[remoteKey]*connection{}, ports: map[uint16][]*listener{}, halfOpen: addrlimit.New[*connection](maxHalfOpen, maxHalfOpenPerAddress)}
}

// random returns a number from the system's generator, which does not fail.
func random() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return binary.NativeEndian.Uint64(b[:])
}

// add makes a connection with a new communication ID; nil: there are too many.
func (m *machine) add(w peerPath) *connection {
	if len(m.locals)-len(m.waits) >= m.config.Connections {
		return nil
	}
	c := &connection{peerPath: w, at: -1, deadline: never, limit: never, answers: make(chan answer, 1), done: make(chan struct{}), confirmed: make(chan struct{}),
		cmRetries: m.config.Retries, response: m.config.Response}
	for c.local == 0 || m.locals[c.local] != nil {
		c.local = uint32(random())
	}
	m.locals[c.local] = c
	return c
}

// indexRemote records the peer's communication ID.
func (m *machine) indexRemote(c *connection) {
	m.remotes[remoteKey{c.peerPath.remote, c.guid, c.remote}] = c
}

// indexPair records the queue pair of a peer that is no longer half-open. If another connection had
// that queue pair, that connection ends.
func (m *machine) indexPair(c *connection) {
	key := remoteKey{c.peerPath.remote, c.guid, c.theirs.qpn}
	if other := m.pairs[key]; other != nil && other.state == connected {
		m.disconnect(other, cm.ErrDisconnected)
	}
	m.pairs[key] = c
}

// remove removes a connection.
func (m *machine) remove(c *connection) {
	c.state = idle
	m.timers.set(c, never)
	m.proven(c)
	delete(m.locals, c.local)
	for all, key := range map[*map[remoteKey]*connection]remoteKey{&m.remotes: {c.peerPath.remote, c.guid, c.remote}, &m.pairs: {c.peerPath.remote, c.guid, c.theirs.qpn}} {
		if (*all)[key] == c {
			delete(*all, key)
		}
	}
}

// receive processes a message.
func (m *machine) receive(w peerPath, b []byte) {
	if why := m.in.Decode(b); why != mad.WellFormed {
		m.counts.malformed[why]++
		return
	}
	m.counts.received[m.in.Kind.Index()]++
	switch m.in.Kind {
	case mad.REQ:
		m.receiveREQ(w)
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
		m.receiveREP(c)
	case mad.RTU:
		m.receiveRTU(c)
	case mad.REJ:
		m.receiveREJ(c)
	case mad.MRA:
		m.receiveMRA(c)
	case mad.DREQ:
		m.receiveDREQ(c)
	case mad.DREP:
		m.receiveDREP(c)
	default:
		m.counts.add(unexpected)
	}
}

// sidrUnsupported says that there is no such datagram service: IB_SIDR_UNSUPPORTED.
const sidrUnsupported = 1

// find returns the connection that a message names, if the message is from its peer.
func (m *machine) find(w peerPath) *connection {
	c := m.locals[m.in.Remote]
	if m.in.Kind == mad.REJ && m.in.Remote == 0 { // from an active side that had no answer and does not know our communication ID
		if c = m.remotes[remoteKey{w.remote, binary.BigEndian.Uint64(m.in.Info[:]), m.in.Local}]; c != nil && m.established(c) {
			return nil // the peer has had an answer, so the message is forged
		}
	}
	switch {
	case c == nil || c.peerPath != w:
		return nil
	case c.remote == m.in.Local, c.remote == 0:
		return c
	case m.in.Kind == mad.REJ && m.in.Local == 0 && !c.passive: // from a passive side that refused without making a connection
		return c
	}
	return nil
}

// established reports whether both sides know each other's communication ID.
func (m *machine) established(c *connection) bool {
	return c.state == connected || c.state == dreqSent || c.state == timeWait
}

// stray answers a message that belongs to no connection. A DREQ is answered by a DREP.
func (m *machine) stray(w peerPath) {
	m.counts.add(unmatched)
	if m.in.Kind == mad.DREQ {
		m.post(w, &mad.Message{Kind: mad.DREP, Transaction: m.in.Transaction, Local: m.in.Remote, Remote: m.in.Local})
	}
}

// post queues a message.
func (m *machine) post(w peerPath, message *mad.Message) {
	if len(m.out) >= maxOut {
		m.counts.add(queueFull)
		return
	}
	m.out = append(m.out, datagram{path: w, kind: message.Kind})
	message.Encode(&m.out[len(m.out)-1].bytes)
	m.counts.sent[message.Kind.Index()]++
}

// sendRetried sends a message of a connection and retransmits it until the peer answers; with tries
// 0 it does not retransmit.
func (m *machine) sendRetried(c *connection, message *mad.Message, tries uint8, wait instant) {
	message.Transaction, message.Local, message.Remote = c.transaction, c.local, c.remote
	message.Encode(&c.last)
	c.kind, c.tries = message.Kind, tries
	m.retransmit(c)
	at := never
	if wait != never {
		at = m.now + wait
	}
	m.timers.set(c, at)
}

// retransmit sends the last message of a connection again.
func (m *machine) retransmit(c *connection) {
	if len(m.out) >= maxOut {
		m.counts.add(queueFull)
		return
	}
	m.out = append(m.out, datagram{c.peerPath, c.kind, c.last})
	m.counts.sent[c.kind.Index()]++
}

// tick handles deadlines that have passed.
func (m *machine) tick() {
	for m.timers.first() <= m.now {
		m.expire(m.timers[0])
	}
}

// expire retransmits the last message, or ends the connection.
func (m *machine) expire(c *connection) {
	switch {
	case c.state == timeWait:
		m.leaveTimeWait(c)
	case c.state == connected:
		m.probeTimedOut(c)
	case c.tries > 0 && m.now < c.limit:
		c.tries--
		m.counts.add(resent)
		m.retransmit(c)
		m.timers.set(c, min(c.limit, m.now+m.config.responseTimeout(c.response)))
	default:
		m.timeOut(c)
	}
}

// await waits for the end of a step.
func (m *Manager) await(ctx context.Context, c *connection, step string, want cm.EventKind) (answer, error) {
	select {
	case a := <-c.answers:
		if a.event == want {
			return a, nil
		}
		return a, a.failure(step)
	case <-c.done:
		return answer{}, fmt.Errorf("%s: %w", step, m.why(c))
	case <-ctx.Done():
		return answer{}, fmt.Errorf("%s: %w", step, context.Cause(ctx))
	}
}

// why returns the reason why a connection has ended, nil before.
func (m *Manager) why(c *connection) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return c.cause
}

// end ends a connection that its program closes. It is called once.
func (m *Manager) end(c *connection) {
	m.do(func(x *machine) {
		m.held--
		x.disconnect(c, cm.ErrClosed)
	})
}

// bringToInit brings a queue pair to INIT.
func bringToInit(q rdma.QueuePair, access rdma.Access) error {
	a := rdma.Attributes{State: rdma.Init, Port: 1, Access: access & rdma.Remote}
	return change(q, a, rdma.MaskPKeyIndex|rdma.MaskPort|rdma.MaskAccess)
}

// bringToRTS brings a queue pair from INIT to RTS, with the values that both sides have announced.
func bringToRTS(c *connection, e *cm.End, ours endpoint) error {
	a := rdma.Attributes{State: rdma.ReadyToReceive, Address: c.path(), PathMTU: c.mtu, RemoteQPN: c.theirs.qpn, ReceivePSN: ours.psn, MinRNRTimer: e.MinRNRTimer,
		MaxRemoteReads: min(e.RemoteReads, c.peerState.remoteReads), SendPSN: c.theirs.psn, MaxReads: min(e.Reads, c.peerState.reads), Timeout: c.timeout, Retries: c.retries,
		RNRRetries: c.rnrRetries}
	if e.Timeout != 0 {
		a.Timeout = e.Timeout
	}
	err := change(e.Queue, a, rdma.MaskAddress|rdma.MaskPathMTU|rdma.MaskRemoteQPN|rdma.MaskReceivePSN|rdma.MaskMaxRemoteReads|rdma.MaskMinRNRTimer)
	if err != nil {
		return err
	}
	a.State = rdma.ReadyToSend
	return change(e.Queue, a, rdma.MaskSendPSN|rdma.MaskMaxReads|rdma.MaskTimeout|rdma.MaskRetries|rdma.MaskRNRRetries)
}

func change(q rdma.QueuePair, a rdma.Attributes, given rdma.Mask) error {
	if err := q.Modify(a, given|rdma.MaskState); err != nil {
		return fmt.Errorf("bring queue pair %d to %v: %w", q.QPN(), a.State, err)
	}
	return nil
}

// checkPrivate refuses private data that is too long.
func checkPrivate(data []byte, most int) error {
	if len(data) > most {
		return fmt.Errorf("private data of %d bytes: at most %d", len(data), most)
	}
	return nil
}

// timers are the connections with a deadline, the first in front.
type timers []*connection

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].deadline < t[j].deadline }
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].at, t[j].at = i, j
}

// Push implements heap.Interface.
func (t *timers) Push(x any) {
	c := x.(*connection)
	c.at = len(*t)
	*t = append(*t, c)
}

// Pop implements heap.Interface.
func (t *timers) Pop() any {
	last := len(*t) - 1
	c := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	c.at = -1
	return c
}

// set changes the deadline of a connection; never removes it.
func (t *timers) set(c *connection, at instant) {
	c.deadline = at
	switch {
	case at == never && c.at >= 0:
		heap.Remove(t, c.at)
	case at == never:
	case c.at >= 0:
		heap.Fix(t, c.at)
	default:
		heap.Push(t, c)
	}
}

// first returns the earliest deadline.
func (t timers) first() instant {
	if len(t) == 0 {
		return never
	}
	return t[0].deadline
}

// state is the state of a connection: IBTA specification, volume 1, 12.9.5 and 12.9.6.
type state uint8

const (
	idle        state = iota
	reqSent           // active side: REQ sent
	reqWaits          // active side: MRA received
	repReceived       // active side: our queue pair is being brought to RTS
	reqReceived       // passive side: the program has the request
	repSent           // passive side: REP sent
	repWaits          // passive side: MRA received
	connected         // ESTABLISHED
	dreqSent          // DREQ sent
	timeWait          // ended
)

// instant is a time of the machine's clock, or a duration, in nanoseconds.
type instant int64

const never instant = 1<<63 - 1

// failure translates an answer into the error of the step that got it.
func (a *answer) failure(step string) error {
	err := &cm.Error{Step: step, Event: a.event, Kind: cm.ErrUnreachable, Private: a.said.private}
	if a.silent {
		err.Errno = unix.ETIMEDOUT
	}
	switch a.event {
	case cm.Rejected:
		err.Kind, err.Reason = cm.ErrRejected, a.reason
	case cm.Disconnected:
		err.Kind = cm.ErrDisconnected
	}
	return err
}
