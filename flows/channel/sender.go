package channel

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach"
	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/rdma/ep"
	"github.com/unifiedd/unifiedd/umem"
)

// SenderConfig configures a Sender.
type SenderConfig struct {
	Name     string // for logs and errors
	Outlet   *attach.Outlet
	Reader   *attach.RemoteReader // of Outlet
	Endpoint *stream.Endpoint     // with the region of the ring; it outlives the sender
	Worker   *umem.Holder         // of the pool for its own frames
	Address  string               // host:port of the peer
	Device   string               // name of Endpoint's device in PathStats
	// Paths are further ways to the peer, in the order of preference. The one of Device and Address comes first. Each is
	// taken when those before it have failed, and left when one of them is well again. With Paths Place is nil.
	Paths   []stream.Path
	Place   stream.Place // where the peer is, if that can change; nil: at Address. It outlives the sender
	Flow    string       // there; empty: any
	Connect connect.Config
	Events  bool // FDs poll readable for events
	Log     *slog.Logger
}

// Numbers of a sender.
const (
	maxWrites = 512 // WRITEs without a completion
	batchLen  = 64  // WRITEs of a post
	acks      = 16  // receives for acknowledgements
	// maxSignals limits the WRITEs with immediate that the receiver has not reported. It posts as many receives.
	maxSignals = 256
)

// Sender passes a channel on to one peer. See the package's documentation for its threads.
type Sender struct {
	config SenderConfig
	ring   *wire.Channel
	slots  uint64
	page   *wire.ReaderPage // the cursor that the writer sees
	strict bool
	wakeFD int
	holder *umem.Holder
	writes int // WRITEs that may be without a completion
	paths  []*path

	path      *path     // of Run: of the present or next connection
	taken     *offer    // of Run: the next connection, if there is one already
	held      bool      // of Run: the writer knows of the peer, and waits for it with the policy wait
	ended     time.Time // of Run: when a connection has ended last
	disturbed bool      // of Run: the last connection may have ended for an attempt over another path

	address string          // of Run: that is dialed, or connected
	changed <-chan struct{} // of Run: closed when the place may have changed since; nil: never
	tries   int             // of Run: attempts that failed. They choose among several addresses of a place

	link     *link
	next     uint64 // sequence to send next
	last     uint64 // numbering of next
	asleep   bool
	ready    bool // there is something to send
	requests [batchLen]rdma.SendRequest
	elements [batchLen]rdma.SGE
	again    ep.PostList // receives to post
	broken   chan struct{}

	sent, bytes, acknowledged counter.Counter
	batches, waits            counter.Counter
	lost                      struct{ passed, invalid, gap counter.Counter }
	state                     senderState
}

// link is a connection.
type link struct {
	path      *path
	pair      rdma.QueuePair
	number    uint32
	rkey      uint32
	addr      uint64 // of the peer's first slot
	numbering uint64
	begin     uint64 // first sequence
	acked     uint64 // sequence that the peer has acknowledged
	final     uint64 // last sequence that was posted
	posted    uint64 // WRITEs
	completed uint64
	signals   uint64 // WRITEs with immediate
	taken     uint64 // of these, what the peer has reported
	cause     error
	probe     stream.Probe
}

// OpenSender makes a sender. Run connects it.
func OpenSender(c SenderConfig) (*Sender, error) {
	slots, _ := c.Outlet.Slots()
	s := &Sender{
		config: c, ring: c.Outlet.Ring(), slots: uint64(slots), page: c.Reader.Page(), strict: c.Reader.Strict(), wakeFD: c.Reader.FD(),
		broken: make(chan struct{}, 1), again: ep.NewPostList(0, 0, acks, acks), writes: maxWrites,
	}
	s.preparePaths()
	s.state.enter(StateWaiting, "")
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open sender %s: %w", c.Name, err), s.Close())
	}
	return s, nil
}

func (s *Sender) open() (err error) {
	if s.holder, err = s.config.Worker.Book().NewHolder(umem.OwnerRDMA, "sender "+s.config.Name); err != nil {
		return err
	}
	for _, p := range s.paths {
		s.writes = min(s.writes, p.endpoint.Device.Capabilities().MaxWorkRequests)
	}
	for _, p := range s.paths {
		if err := p.open(s); err != nil {
			return err
		}
	}
	return nil
}

// Close gives everything back. Run must have ended.
func (s *Sender) Close() error {
	for _, p := range s.paths {
		if err := p.done.Close(); err != nil {
			return fmt.Errorf("close sender %s: %w", s.config.Name, err) // keep the frames: the device may still use them
		}
	}
	if s.holder != nil {
		s.holder.Close()
		s.holder = nil
	}
	return nil
}

// Poll sends what the ring has. The error says that the device is gone.
func (s *Sender) Poll(time.Time) (more bool, err error) {
	if s.asleep {
		s.asleep = false
		s.page.SetAsleep(false)
		s.config.Reader.Woken(s.wakeFD)
	}
	n, err := s.drain()
	if err == nil && s.again.Receives != nil && s.link != nil {
		s.repost()
	}
	more = s.post() || n > 0
	if l := s.link; l != nil && s.config.Events && err == nil {
		again, aerr := l.path.done.Arm(true, true)
		more, err = more || again, aerr
	}
	if err != nil {
		return false, fmt.Errorf("sender %s: %w", s.config.Name, err)
	}
	return more, nil
}

// drain processes the completions of all paths. Those of a path that is not used are of connections that have ended.
func (s *Sender) drain() (n int, err error) {
	for _, p := range s.paths {
		got, err := p.done.Drain(p.handle)
		if n += got; err != nil {
			return n, err
		}
	}
	return n, nil
}

// repost posts the receives of acknowledgements again.
func (s *Sender) repost() {
	if len(s.again.Receives) == 0 || s.link.cause != nil {
		s.again.Reset()
		return
	}
	if err := s.again.Post(s.link.pair); err != nil {
		s.fail(err)
	}
}

// complete processes a completion.
func (s *Sender) complete(p *path, c *rdma.WorkCompletion) {
	l := s.link
	switch {
	case l == nil || l.path != p || c.QPN != l.number:
	case c.Status != rdma.Success:
		s.fail(c.Err())
	case c.ID&receiveID == 0:
		l.completed = max(l.completed, l.probe.Done(c.ID))
	default:
		n := int(c.ID &^ receiveID)
		a, err := parseAck(p.cells.Bytes(n)[:min(c.Length, 64)])
		if err == nil {
			err = s.heard(a)
		}
		if err != nil {
			s.fail(err)
			return
		}
		s.again.Receive(c.ID, p.cells.SGE(n))
	}
}

// receiveID marks the IDs of receives. Other IDs are numbers of WRITEs.
const receiveID = 1 << 63

// heard processes an acknowledgement.
func (s *Sender) heard(a ack) error {
	l := s.link
	if a.acknowledged < l.acked || a.acknowledged >= s.next || a.taken < l.taken || a.taken > l.signals {
		return fmt.Errorf("%w: the peer acknowledges message %d and %d signals, and was sent %d and %d", protocol.BadSequence, a.acknowledged, a.taken, s.next-1, l.signals)
	}
	l.probe.Heard()
	s.acknowledged.Add(a.acknowledged - l.acked)
	l.acked, l.taken = a.acknowledged, a.taken
	s.page.SetCursor(l.acked + 1)
	return nil
}

// post posts WRITEs for messages, and reports whether it did.
func (s *Sender) post() (some bool) {
	l := s.link
	s.ready = false
	if l == nil || l.cause != nil {
		return false
	}
	last := s.ring.Last()
	if last < s.next {
		return false
	}
	if s.ring.Numbering() != l.numbering {
		s.fail(errNumbering)
		return false
	}
	if last-s.next >= s.slots && !s.passed(last) {
		return false
	}
	for s.next <= last {
		n := s.batch(min(last, l.until(s.next, s.slots)))
		if n == 0 {
			break
		}
		some = true
		took, err := l.pair.PostSend(s.requests[:n], s.elements[:n])
		if err != nil {
			s.fail(fmt.Errorf("post %d of %d messages: %w", took, n, err))
			return some
		}
		s.batches.Add(1)
	}
	if s.next <= last && !some {
		s.waits.Add(1)
	}
	return some
}

var (
	errNumbering = errors.New("the writer has begun to number its messages anew")
	errSlow      = errors.New("too_slow: the writer has written over messages that were not sent")
)

// passed handles messages that the writer has written over. It reports whether to go on.
func (s *Sender) passed(last uint64) bool {
	if s.strict {
		s.fail(errSlow)
		return false
	}
	oldest := last - s.slots*3/4 + 1
	s.lose(&s.lost.passed, oldest-s.next)
	s.next = oldest
	return true
}

func (s *Sender) lose(why *counter.Counter, n uint64) {
	why.Add(n)
	s.page.AddLost(n)
}

// until returns the last sequence that may be sent, next being the next one: the peer's ring has a place for it. If the
// peer has acknowledged everything, all of its ring is free, whatever lies between the sequences.
func (l *link) until(next, slots uint64) uint64 {
	if l.acked >= l.final {
		return next - 1 + slots
	}
	return l.acked + slots
}

// batch makes WRITEs of the next messages up to a sequence. The last one has an immediate.
func (s *Sender) batch(until uint64) (n int) {
	l := s.link
	room := min(batchLen, s.writes-int(l.posted-l.completed+l.probe.Places()))
	if l.signals-l.taken >= maxSignals {
		room = 0
	}
	final, bytes := uint64(0), uint64(0)
	for ; n < room && s.next <= until; s.next++ {
		length, ok := s.ring.Look(s.next)
		if !ok {
			s.missing(length)
			continue
		}
		place := s.ring.Place(s.next)
		s.requests[n] = rdma.SendRequest{Op: rdma.Write, SGEs: 1, RemoteAddr: l.addr + place - wire.ChannelHeader, RKey: l.rkey}
		s.elements[n] = rdma.SGE{Addr: l.path.base + place, Length: length, LKey: l.path.lkey}
		final, bytes = s.next, bytes+uint64(length-wire.SlotHeader)
		n++
	}
	if n == 0 {
		return 0
	}
	l.posted += uint64(n)
	l.signals++
	l.final = final
	r := &s.requests[n-1]
	r.Op, r.Flags, r.ID = rdma.WriteImmediate, rdma.Signaled, l.posted
	be.PutUint32(r.Immediate[:], uint32(final))
	s.sent.Add(uint64(n))
	l.path.sent.Add(uint64(n))
	s.bytes.Add(bytes)
	return n
}

// missing counts a message that is not where it must be: the writer has written over it, or claims a length for it that
// no message has.
func (s *Sender) missing(length uint32) {
	if length == 0 {
		s.lose(&s.lost.passed, 1)
		return
	}
	s.lose(&s.lost.invalid, 1)
}

// fail records why the connection ends, and makes Run end it.
func (s *Sender) fail(cause error) {
	if s.link.cause == nil || errors.Is(s.link.cause, rdma.WorkFlushed) && !errors.Is(cause, rdma.WorkFlushed) {
		s.link.cause = cause
	}
	select {
	case s.broken <- struct{}{}:
	default:
	}
}

// attach makes a connection the present one.
func (s *Sender) attach(l *link) error {
	if s.last == l.numbering && l.begin > s.next {
		s.lose(&s.lost.gap, l.begin-s.next)
	}
	s.link, s.next, s.last = l, l.begin, l.numbering
	// The writer has waited for this peer only since it was connected, and may have gone on meanwhile.
	if last := s.ring.Last(); last >= s.next && last-s.next >= s.slots {
		oldest := s.ring.Oldest()
		s.lose(&s.lost.gap, oldest-s.next)
		s.next = oldest
	}
	s.again.Reset()
	select {
	case <-s.broken: // of the connection before
	default:
	}
	return nil
}

// detach ends the present connection, and returns why it has failed, or nil.
func (s *Sender) detach() (cause error) {
	cause, s.link = s.link.cause, nil
	return cause
}

// FDs appends the descriptors that become readable when there is something to do.
func (s *Sender) FDs(dst []unix.PollFd) []unix.PollFd {
	if s.link == nil || s.holder == nil {
		return dst
	}
	s.asleep = true
	s.page.SetAsleep(true)
	last := s.ring.Last() // the writer looks at the page after it has stored this
	s.ready = last >= s.next && s.link.until(s.next, s.slots) >= s.next
	return append(dst, unix.PollFd{Fd: int32(s.wakeFD), Events: unix.POLLIN}, unix.PollFd{Fd: int32(s.link.path.done.Queue.FD()), Events: unix.POLLIN})
}

// Ready reports, after FDs, whether there is something to send already.
func (s *Sender) Ready() bool { return s.ready }

// States of a Sender.
const (
	StateWaiting    = "waiting"
	StateConnecting = "connecting"
	StateConnected  = stream.SenderConnected
)

// senderState is what Run tells.
type senderState struct {
	now         atomic.Pointer[stateNow]
	connections atomic.Uint64
	failures    atomic.Uint64
	followed    atomic.Uint64
	at          atomic.Pointer[string] // the address of a place; nil: not known yet
}

// address returns where the peer is: otherwise, if it has no place.
func (s *senderState) address(otherwise string) string {
	if at := s.at.Load(); at != nil {
		return *at
	}
	return otherwise
}

// stateNow is the state of a moment.
type stateNow struct{ state, cause, peer string }

func (s *senderState) enter(state, cause string) { s.now.Store(&stateNow{state: state, cause: cause}) }

// SenderStats describes a sender.
type SenderStats struct {
	Address, State, Cause, Peer string
	Sent, Bytes                 uint64 // messages and their payloads
	Acknowledged                uint64 // messages
	Batches                     uint64
	Waits                       uint64 // rounds in which the peer's ring was full
	Passed, Invalid, Gap        uint64 // lost messages: written over before they were sent, not whole, and while there was no connection
	Connections, Failures       uint64
	Followed                    uint64 // times that the sender went to another address because the peer had moved
}

// Stats describes the sender. Any goroutine may call it.
func (s *Sender) Stats() SenderStats {
	now := s.state.now.Load()
	return SenderStats{
		Address: s.state.address(s.config.Address), State: now.state, Cause: now.cause, Peer: now.peer, Sent: s.sent.Load(), Bytes: s.bytes.Load(),
		Acknowledged: s.acknowledged.Load(), Batches: s.batches.Load(), Waits: s.waits.Load(),
		Passed: s.lost.passed.Load(), Invalid: s.lost.invalid.Load(), Gap: s.lost.gap.Load(),
		Connections: s.state.connections.Load(), Failures: s.state.failures.Load(), Followed: s.state.followed.Load(),
	}
}

// Traffic returns the messages that were sent and their bytes. Any goroutine may call it.
func (s *Sender) Traffic() (messages, bytes uint64) { return s.sent.Load(), s.bytes.Load() }
