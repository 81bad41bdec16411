package stream

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// SenderConfig configures a Sender.
type SenderConfig struct {
	Name     string       // for logs, errors and status
	Endpoint *Endpoint    // the device; it outlives the sender
	Worker   *umem.Holder // holds the frames that are sent
	Address  string       // of the receiver: host and TCP port
	// Others are the addresses of the other members, if the receiver is a member of a group. The sender
	// tries them in turn, and goes at once to the leader that a member names, if that is one of them.
	Others []string
	// Places are where the receiver and the other members are, if that can change; nil: at Address and Others, always.
	// They outlive the sender. The sender follows a receiver that moves.
	Places []Place
	// Paths are further ways to the receiver, in the order in which they are taken when Endpoint and Address fail. They
	// need a receiver that is the same at all of them, and exclude Places and Settings. If the receiver is a member of a
	// group, each path leads to all members. A path that fails to one of them can go on to be used to another.
	Paths []Path
	// Active sends over all paths at the same time, if the receiver restores the order of messages. Otherwise, and for
	// other receivers, the sender uses one path at a time. It excludes Others.
	Active  bool
	Device  string // name of Endpoint's device in SenderStats.Paths
	Flow    string // the flow there; empty: any
	Connect connect.Config
	// Settings are those of the queue pair; nil: Endpoint.Settings for the receiver's address, at
	// each attempt.
	Settings    *connect.Settings
	Durability  protocol.Durability // the least that an acknowledgement must mean; a receiver that promises less is refused. 0: anything
	Participant uint32              // the number of this sender if the receiver combines several; 0: none
	Depth       int                 // bound of messages without a result, or with Spares of those not acknowledged; at most 65536 with Spares; default 1024
	Message     uint32              // the longest message in bytes, header included
	Frames      int                 // the most frames of a message; default 3
	Method      Method              // how messages reach the receiver; a receiver that wants another method is refused
	// Spares is the number of messages that may be sent beyond Depth if that many are acknowledged.
	// Done then reports messages later, after a few more were sent, which costs fewer completions.
	Spares int
	Events bool         // FD polls readable for events
	OnArm  bool         // only after Arm, for a caller that polls and only now and then waits
	Times  *SenderTimes // records latencies; nil: not recorded
	Log    *slog.Logger
}

const (
	mostDepth    = 1 << 16
	mostPosted   = 512 // work requests in flight
	receives     = 64  // the most receives for messages of the receiver
	fewReceives  = 32  // the fewest: Depth messages cause somewhat more than two acknowledgements and credits each
	sendBatch    = 64  // work requests per post, and completions per poll
	signalEvery  = 8   // the most requests per signaled one
	headerBytes  = protocol.HeaderLen
	messageBytes = protocol.MaxGrantLen // of a receive
)

// Sender delivers every message once and in order to one receiver, over as many connections as
// necessary.
//
// Run connects, in its own goroutine. All other methods except Stats belong to the worker's thread.
// They do not block, and allocate nothing while a connection lasts.
//
// The sender borrows the frames of a message: they keep their owner and must not change until Done
// reports the message. Done reports it when the receiver has acknowledged it and the device no
// longer needs its frames.
type Sender struct {
	config SenderConfig
	holder *umem.Holder
	own    []umem.Frame // for headers and receives
	region *umem.Region
	paths  []*senderPath // to the receiver, the preferred one first; there is at least one
	on     *senderPath   // the one of the link, or of the last one; the worker's
	limits pairLimits
	opened time.Time
	to     target // of Run: which receiver is dialed
	// standby and taken are of Run.
	standby *standbys    // nil: none yet, or no group
	taken   *offer       // the next connection; nil: one is to be made
	path    *senderPath  // that is dialed
	again   bool         // path leads to the member over whose other path the last connection was
	spawn   func(func()) // begins a goroutine that dials; a test has it in a network namespace

	out    sendQueue
	pieces []rdma.SGE // of the queued messages: Frames+1 for each slot
	now    int64      // time of the last Poll: nanoseconds since the sender was opened,
	wall   int64      // and since 1970
	fresh  uint64     // highest number ever posted
	// link is a connected queue pair.
	link     *link   // nil: not connected
	ending   *link   // being closed: the device may still read its posted messages
	spread   *spread // nil: one path at a time
	giveUp   bool    // abandon all messages when none is posted
	session  uint64
	begun    uint64 // number before the session's first message
	gap      bool   // the session misses messages, so the next connection needs a new session
	sent     uint64 // highest number posted on the link
	done     uint64 // numbers up to it have completed
	confirm  uint64 // highest number acknowledged
	counted  uint64 // the highest acknowledged number that was counted
	heardAt  int64  // when the last acknowledgement came, as now
	position uint64 // of confirm in the receiver's log, if it has one
	limit    uint64 // highest number that may be sent
	requests [sendBatch]rdma.SendRequest
	elements []rdma.SGE // elements of these requests
	polled   [sendBatch]rdma.WorkCompletion
	posts    [receives]rdma.ReceiveRequest // receives to post again
	landings [receives]rdma.SGE
	heards   int           // number of these receives
	broken   chan struct{} // filled when the link has failed
	stats    senderStats
}

// pairLimits are the depths of a queue pair.
type pairLimits struct{ send, receive int }

// link is a queue pair that is connected.
type link struct {
	pair    rdma.QueuePair
	path    *senderPath
	number  uint32
	credits *credits      // nil: messages are sent, not written
	origins bool          // the receiver accepts origins
	cause   error         // why it failed
	broken  chan struct{} // filled when it has failed, if it is one of several

	probes bool // there is another path, and the receiver's device answers probes
	probe  Probe

	// Of one of several links only: see spread.
	several    bool
	receiver   uint32   // which one: protocol.Hello.Path
	limit      uint64   // highest number that may be sent
	numbers    []uint64 // of messages, by request; a ring
	head, tail uint64   // the next request to be completed, and to be made, from 1 on
	batch      int      // requests made and not posted
}

// OpenSender makes a sender and takes frames from the region for headers. The receiver need not
// exist yet. OpenSender may be called from any thread while no other thread uses the worker's book.
// The caller closes the sender.
func OpenSender(c SenderConfig) (*Sender, error) {
	s := &Sender{config: c, opened: time.Now(), spawn: func(f func()) { go f() }, broken: make(chan struct{}, 1), to: newTarget(&c)}
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open sender %s: %w", c.Name, err), s.Close())
	}
	return s, nil
}

func (s *Sender) open() (err error) {
	c := &s.config
	if err := c.check(); err != nil {
		return err
	}
	if s.region = c.Worker.Book().Region(); s.region != c.Endpoint.Region {
		return errors.New("the worker's region is not the one that is registered with the device")
	}
	s.session = newSession()
	s.limits = pairLimits{send: min(c.slots(), mostPosted), receive: min(max(2*c.Depth+2, fewReceives), receives)}
	s.preparePaths()
	for _, p := range s.paths {
		device := p.endpoint.Device.Capabilities()
		if most := device.MaxSGEs - 1; c.Frames > most {
			return fmt.Errorf("messages of %d frames: the device takes at most %d", c.Frames, most)
		}
		s.limits = pairLimits{send: min(s.limits.send, device.MaxWorkRequests), receive: min(s.limits.receive, device.MaxWorkRequests)}
	}
	s.out = newOutbox(c.slots())
	s.pieces = make([]rdma.SGE, c.slots()*(c.Frames+1))
	s.elements = make([]rdma.SGE, 0, sendBatch*(c.Frames+1))
	s.stats.begin()
	if s.holder, err = c.Worker.Book().NewHolder(umem.OwnerRDMA, "sender "+c.Name); err != nil {
		return err
	}
	if err := s.takeOwn(); err != nil {
		return err
	}
	return s.openPaths()
}

func (c *SenderConfig) check() error {
	if c.Depth == 0 {
		c.Depth = 1024
	}
	if c.Frames == 0 {
		c.Frames = 3
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Method = cmp.Or(c.Method, AnyMethod)
	switch {
	case c.Endpoint == nil || c.Worker == nil:
		return errors.New("it needs an Endpoint and a Worker")
	case c.Active && (len(c.Paths) == 0 || len(c.Paths) >= protocol.MaxPaths):
		return fmt.Errorf("messages go over %d paths at the same time: it must be 2 to %d", len(c.Paths)+1, protocol.MaxPaths)
	case c.Active && c.Method == ByWrite:
		return errors.New("messages that are written go over one path at a time: let the method be send, or the paths stand by")
	case c.Active && len(c.Others) > 0:
		return errors.New("members of a group take messages over one path at a time: leave out Active")
	case len(c.Paths) > 0 && (c.Places != nil || c.Settings != nil):
		return errors.New("several paths lead to addresses that do not change")
	case c.Method != AnyMethod && c.Method != BySend && c.Method != ByWrite:
		return fmt.Errorf("method %q is none of any, send and write", c.Method)
	case c.Depth < 1 || c.Spares < 0 || c.slots() > mostDepth:
		return fmt.Errorf("a depth of %d messages and %d more: it must be 1 to %d", c.Depth, c.Spares, mostDepth)
	case c.Frames < 1:
		return fmt.Errorf("messages of %d frames: they have at least one", c.Frames)
	case c.Message <= protocol.HeaderLen:
		return fmt.Errorf("messages of %d bytes: the header alone has %d", c.Message, protocol.HeaderLen)
	}
	for _, p := range c.Paths {
		if len(p.Others) != len(c.Others) {
			return fmt.Errorf("path to %s: it has addresses of %d other members of the group, and there are %d: give it one for each, in the same order", p.Address, len(p.Others), len(c.Others))
		}
	}
	return nil
}

// slots returns how many messages the queue has room for.
func (c *SenderConfig) slots() int { return c.Depth + c.Spares }

// newSession returns a random number other than 0.
func newSession() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // does not fail
	return max(binary.NativeEndian.Uint64(b[:]), 1)
}

// takeOwn takes frames for headers, one header for each slot, and for receives.
func (s *Sender) takeOwn() error {
	s.own = make([]umem.Frame, s.framesFor(s.config.slots(), headerBytes)+s.framesFor(s.areas()*s.limits.receive, messageBytes))
	if n := s.holder.Take(s.own); n < len(s.own) {
		return fmt.Errorf("the pool has %d of %d frames for its headers: make the region larger, or the queue shorter", n, len(s.own))
	}
	return nil
}

// framesFor returns the number of frames for n pieces of the given size.
func (s *Sender) framesFor(n int, bytes uint32) int {
	each := int(s.region.FrameSize() / bytes)
	return (n + each - 1) / each
}

// place returns the address of a header.
func (s *Sender) place(n int) uint64 { return s.piece(s.own, n, headerBytes) }

// landing returns the address of a receive of a path.
func (s *Sender) landing(p *senderPath, id uint64) uint64 {
	return s.piece(s.own[s.framesFor(s.config.slots(), headerBytes):], p.area*s.limits.receive+int(id&^receiveID), messageBytes)
}

// areas returns how many paths have receives of their own: those that may be connected at the same time.
func (s *Sender) areas() int {
	if s.config.Active {
		return len(s.paths)
	}
	return 1
}

func (s *Sender) piece(of []umem.Frame, n int, bytes uint32) uint64 {
	each := int(s.region.FrameSize() / bytes)
	return of[n/each].Addr + uint64(n%each)*uint64(bytes)
}

// Connected reports whether messages can be posted.
func (s *Sender) Connected() bool { return s.link != nil && s.link.cause == nil }

// Fits reports whether a message with this number of frames and of payload bytes can be sent at
// all.
func (s *Sender) Fits(frames int, length uint32) bool {
	return frames <= s.config.Frames && uint64(length)+protocol.HeaderLen <= uint64(s.config.Message)
}

// Send queues a message; Kick or Poll posts it. length and checksum (protocol.Checksum) cover the
// bytes of all its frames. stamp is its time in nanoseconds since 1970. Done returns the token.
// Send returns false if there is no room, or if the message does not fit.
func (s *Sender) Send(message []umem.Frame, length, checksum uint32, stamp, token uint64) bool {
	return s.Relay(message, length, checksum, stamp, token, protocol.Origin{})
}

// Relay is Send for a message that was received in another session. A receiver that accepts origins
// accepts each of them once, over all connections and restarts of the relaying program.
func (s *Sender) Relay(message []umem.Frame, length, checksum uint32, stamp, token uint64, origin protocol.Origin) bool {
	if !s.Room() || !s.Fits(len(message), length) {
		return false
	}
	slot := s.out.push(outgoing{token: token, stamp: stamp, arrived: s.arrived(message, stamp), since: s.now, length: length, checksum: checksum, origin: origin})
	e := s.elementsOf(slot)
	e[0] = rdma.SGE{Addr: s.on.base + s.place(int(slot)), Length: protocol.HeaderLen, LKey: s.on.lkey}
	n := 1
	for _, f := range message {
		if f.Len > 0 {
			e[n] = rdma.SGE{Addr: s.on.base + f.Addr, Length: f.Len, LKey: s.on.lkey}
			n++
		}
	}
	s.out.slots[slot].elements = uint32(n)
	return true
}

// elementsOf returns the elements of a slot.
func (s *Sender) elementsOf(slot uint32) []rdma.SGE {
	each := s.config.Frames + 1
	return s.pieces[int(slot)*each : (int(slot)+1)*each]
}

// Done returns messages to the caller; acknowledged ones are in order. It fills dst and returns
// their number.
func (s *Sender) Done(dst []Result) int { return s.out.take(dst) }

// Acknowledged returns how many of the posted messages are acknowledged or abandoned, and the
// position in the receiver's log. Done reports a message only when the device no longer needs its
// frames either.
func (s *Sender) Acknowledged() (messages, position uint64) { return s.confirm, s.position }

// Room reports whether Send takes another message.
func (s *Sender) Room() bool {
	return !s.giveUp && s.out.room() && (s.config.Spares == 0 || s.unacknowledged() < s.config.Depth)
}

// flight returns the number of messages that have a number and are not acknowledged.
func (s *Sender) flight() uint64 { return s.out.last - max(s.confirm, s.out.first-1) }

// unacknowledged returns how many queued messages are not acknowledged.
func (s *Sender) unacknowledged() int {
	return s.out.waiting.Len() + int(s.flight())
}

// Depth returns the limit of messages without a result, or with Spares of those not acknowledged.
func (s *Sender) Depth() int { return s.config.Depth }

// Oldest returns the token of the message that Drop would remove.
func (s *Sender) Oldest() (token uint64, ok bool) { return s.out.oldest() }

// Drop removes the message that has waited longest, and returns its token. A message that was ever
// posted to this receiver cannot be dropped.
func (s *Sender) Drop() (token uint64, ok bool) {
	if token, ok = s.out.drop(); ok {
		s.stats.count.dropped++
		s.stats.stale = true
	}
	return token, ok
}

// Abandon gives up all messages that are not acknowledged, and the connection. Done reports them as
// soon as nothing is posted; until then nothing can be sent. The receiver then gets a new session.
func (s *Sender) Abandon() {
	s.giveUp = true
	switch {
	case s.spread != nil:
		s.failAll(errAbandoned)
	case s.link != nil:
		s.fail(errAbandoned)
	case s.ending == nil:
		s.abandon()
	}
}

func (s *Sender) abandon() {
	s.gap = s.gap || s.out.inFlight() > 0
	s.stats.count.dropped += uint64(s.out.abandon())
	s.giveUp = false
}

// errAbandoned is the cause of the end of a connection after Abandon.
var errAbandoned = errors.New("the receiver was too slow, and was given up")

// Queued returns how many messages Done has not reported.
func (s *Sender) Queued() int { return s.config.slots() - len(s.out.free) + int(s.out.made-s.out.told) }

// Close gives the sender's frames back. Run must have returned before. Messages that are not
// acknowledged are lost, and the sender stops using their frames. After an error Close may be
// called again.
func (s *Sender) Close() error {
	var errs []error
	for _, l := range append([]*link{s.link, s.ending}, s.spread.all()...) {
		if l != nil {
			errs = append(errs, l.pair.Close())
		}
	}
	for _, p := range s.paths {
		errs = append(errs, p.close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close sender %s: %w", s.config.Name, err) // keep the frames: the device may still use them
	}
	s.link, s.ending, s.spread = nil, nil, nil
	if s.holder != nil {
		s.holder.Close()
		s.holder = nil
	}
	return nil
}
