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

// SenderConfig says what sender to open.
type SenderConfig struct {
	Name     string       // for people
	Endpoint *Endpoint    // the device; it outlives the sender
	Worker   *umem.Holder // of the thread that sends
	Address  string       // of the receiver: host and TCP port
	Flow     string       // that is wanted there; empty: whatever is served
	Connect  connect.Config
	// Settings are those of the queue pair; nil: Endpoint.Settings for the receiver's address, at each attempt.
	Settings    *connect.Settings
	Durability  protocol.Durability // what the receiver's acknowledgements must mean at least; one that promises less is not connected to. 0: anything
	Participant uint32              // which one of several senders whose messages the receiver combines; 0: not said
	Depth       int                 // the most messages that are sent and not done with, or not acknowledged where there are Spares, up to 65536 with those; default 1024
	Message     uint32              // the longest message, in bytes, its header included
	Frames      int                 // the most frames of a message; default 3
	Method      Method              // how messages go; a receiver that wants it otherwise is not connected to
	// Spares is how many messages more than Depth may be sent, if so many are acknowledged: then Done tells of these late, when a few were sent behind
	// them, which costs less than to tell of each at once.
	Spares int
	Events bool         // FD can be waited for
	Times  *SenderTimes // where to record how long messages took; nil: nowhere
	Log    *slog.Logger
}

const (
	mostDepth    = 1 << 16
	mostPosted   = 512 // work requests on their way at once
	receives     = 64  // messages of the receiver's that may come before one is looked at, at most,
	fewReceives  = 32  // and at least: acknowledgements and credits of Depth messages are some more than twice as many
	sendBatch    = 64  // work requests that are posted, and completions that are polled, in one call
	signalEvery  = 8   // a completion says of so many requests that they are done, at most
	headerBytes  = protocol.HeaderLen
	messageBytes = protocol.MaxGrantLen // room for one of the receiver's
)

// Sender has one receiver get every message once and in order, over as many connections as it takes.
//
// Run connects, on a goroutine of its own. Everything else but Stats belongs to the worker's thread, does not
// block, and allocates nothing while a connection lasts.
//
// Messages that are sent are borrowed: their frames stay whose they are, and as they are, until Done tells of them. A message is told of
// once the receiver acknowledged it and the device is done with it.
type Sender struct {
	config SenderConfig
	holder *umem.Holder
	own    []umem.Frame // headers, and where the receiver's messages land
	region *umem.Region
	queue  rdma.CompletionQueue
	event  arming
	lkey   uint32
	base   uint64 // what the registration adds to a region's address
	limits pairLimits
	opened time.Time

	out      sendQueue
	pieces   []rdma.SGE // of the messages in the outbox: Frames+1 for each slot
	now      int64      // nanoseconds since opened, as of the last Poll
	wall     int64      // and since 1970
	fresh    uint64     // highest number that was ever posted
	link     *link      // nil: there is none
	ending   *link      // is being closed: what was posted on it may still be read
	giveUp   bool       // everything in the outbox is to be given up once nothing of it is posted
	session  uint64
	begun    uint64 // number in front of the session's first message
	gap      bool   // the session misses messages: there must be a new one
	sent     uint64 // highest number posted on the link
	done     uint64 // numbers up to it are not posted any more
	confirm  uint64 // highest number acknowledged
	counted  uint64 // and of those, the highest that was counted
	position uint64 // of that message, where the receiver has a log
	limit    uint64 // highest number that may be sent
	requests [sendBatch]rdma.SendRequest
	elements []rdma.SGE // of those
	polled   [sendBatch]rdma.WorkCompletion
	posts    [receives]rdma.ReceiveRequest // to be posted again
	landings [receives]rdma.SGE
	heards   int           // how many those are
	broken   chan struct{} // one in it: the link has failed
	stats    senderStats
}

// pairLimits is how many work requests a queue pair is made for.
type pairLimits struct{ send, receive int }

// link is a queue pair that is connected.
type link struct {
	pair    rdma.QueuePair
	number  uint32
	credits *credits // nil: messages are sent, not written
	origins bool     // the receiver takes origins
	cause   error    // of its failure
}

// OpenSender makes a sender, which takes frames from the pool for its headers. The receiver need not be there yet. It may be called on any thread
// while no other uses the worker's book. The sender is the caller's to close.
func OpenSender(c SenderConfig) (*Sender, error) {
	s := &Sender{config: c, opened: time.Now(), broken: make(chan struct{}, 1)}
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
	s.lkey, s.base = c.Endpoint.Memory.LKey(), c.Endpoint.Memory.Addr()
	device := c.Endpoint.Device.Capabilities()
	if most := device.MaxSGEs - 1; c.Frames > most {
		return fmt.Errorf("messages of %d frames: the device takes at most %d", c.Frames, most)
	}
	s.limits = pairLimits{send: min(c.slots(), mostPosted, device.MaxWorkRequests), receive: min(max(2*c.Depth+2, fewReceives), receives, device.MaxWorkRequests)}
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
	s.queue, err = c.Endpoint.Device.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: s.limits.send + s.limits.receive, Events: c.Events})
	return err
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
	case c.Method != AnyMethod && c.Method != BySend && c.Method != ByWrite:
		return fmt.Errorf("method %q is none of any, send and write", c.Method)
	case c.Depth < 1 || c.Spares < 0 || c.slots() > mostDepth:
		return fmt.Errorf("a depth of %d messages and %d more: it must be 1 to %d", c.Depth, c.Spares, mostDepth)
	case c.Frames < 1:
		return fmt.Errorf("messages of %d frames: they have at least one", c.Frames)
	case c.Message <= protocol.HeaderLen:
		return fmt.Errorf("messages of %d bytes: the header alone has %d", c.Message, protocol.HeaderLen)
	}
	return nil
}

// slots is how many messages the outbox has room for.
func (c *SenderConfig) slots() int { return c.Depth + c.Spares }

// newSession is a random number that is not 0.
func newSession() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it does not fail
	return max(binary.NativeEndian.Uint64(b[:]), 1)
}

// takeOwn takes frames for headers, one for each slot of the outbox, and behind them for receives.
func (s *Sender) takeOwn() error {
	s.own = make([]umem.Frame, s.framesFor(s.config.slots(), headerBytes)+s.framesFor(s.limits.receive, messageBytes))
	if n := s.holder.Take(s.own); n < len(s.own) {
		return fmt.Errorf("the pool has %d of %d frames for its headers: make the region larger, or the queue shorter", n, len(s.own))
	}
	return nil
}

// framesFor is how many frames so many pieces of so many bytes take.
func (s *Sender) framesFor(n int, bytes uint32) int {
	each := int(s.region.FrameSize() / bytes)
	return (n + each - 1) / each
}

// place is where one of the sender's own headers is.
func (s *Sender) place(n int) uint64 { return s.piece(s.own, n, headerBytes) }

// landing is where the message of a receive lies.
func (s *Sender) landing(id uint64) uint64 {
	return s.piece(s.own[s.framesFor(s.config.slots(), headerBytes):], int(id&^receiveID), messageBytes)
}

func (s *Sender) piece(of []umem.Frame, n int, bytes uint32) uint64 {
	each := int(s.region.FrameSize() / bytes)
	return of[n/each].Addr + uint64(n%each)*uint64(bytes)
}

// Connected reports whether messages can go out.
func (s *Sender) Connected() bool { return s.link != nil && s.link.cause == nil }

// Fits reports whether a message of so many frames with so many bytes of payload can be sent at all.
func (s *Sender) Fits(frames int, length uint32) bool {
	return frames <= s.config.Frames && uint64(length)+protocol.HeaderLen <= uint64(s.config.Message)
}

// Send takes a message, to be posted by Kick or Poll. Its length and its checksum (protocol.Checksum) are those of the frames' bytes together, the
// stamp is the time it is said to be of, in nanoseconds since 1970, and the token comes back with Done. It is false when there is no room, and for what does not fit.
func (s *Sender) Send(message []umem.Frame, length, checksum uint32, stamp, token uint64) bool {
	return s.Relay(message, length, checksum, stamp, token, protocol.Origin{})
}

// Relay is Send of a message that came in another session. A receiver that takes origins takes each of them once, over all connections and runs of
// who relays them.
func (s *Sender) Relay(message []umem.Frame, length, checksum uint32, stamp, token uint64, origin protocol.Origin) bool {
	if !s.Room() || !s.Fits(len(message), length) {
		return false
	}
	slot := s.out.push(outgoing{token: token, stamp: stamp, arrived: s.arrived(message, stamp), since: s.now, length: length, checksum: checksum, origin: origin})
	e := s.elementsOf(slot)
	e[0] = rdma.SGE{Addr: s.base + s.place(int(slot)), Length: protocol.HeaderLen, LKey: s.lkey}
	n := 1
	for _, f := range message {
		if f.Len > 0 {
			e[n] = rdma.SGE{Addr: s.base + f.Addr, Length: f.Len, LKey: s.lkey}
			n++
		}
	}
	s.out.slots[slot].elements = uint32(n)
	return true
}

// elementsOf are the places for the elements of a slot.
func (s *Sender) elementsOf(slot uint32) []rdma.SGE {
	each := s.config.Frames + 1
	return s.pieces[int(slot)*each : (int(slot)+1)*each]
}

// Done tells of messages that the caller has back: of those that were acknowledged in their order. It fills dst and returns how many there were.
func (s *Sender) Done(dst []Result) int { return s.out.take(dst) }

// Acknowledged is how many messages the receiver has acknowledged, or were given up, of those that were posted, and the position that it gave with
// that. Done tells of them once the device is done with them, too.
func (s *Sender) Acknowledged() (messages, position uint64) { return s.confirm, s.position }

// Room reports whether Send takes another message.
func (s *Sender) Room() bool {
	return !s.giveUp && s.out.room() && (s.config.Spares == 0 || s.unacknowledged() < s.config.Depth)
}

// flight is how many messages were numbered to be posted and are not acknowledged.
func (s *Sender) flight() uint64 { return s.out.last - max(s.confirm, s.out.first-1) }

// unacknowledged is how many messages were sent and not acknowledged.
func (s *Sender) unacknowledged() int {
	return s.out.waiting.len() + int(s.flight())
}

// Depth is how many messages may be sent and not done with, or not acknowledged where there are spare ones.
func (s *Sender) Depth() int { return s.config.Depth }

// Oldest is the token of the message that Drop would give up.
func (s *Sender) Oldest() (token uint64, ok bool) { return s.out.oldest() }

// Drop gives up the message that waits longest, and returns its token. Those that were posted once, to this receiver, cannot be dropped.
func (s *Sender) Drop() (token uint64, ok bool) {
	if token, ok = s.out.drop(); ok {
		s.stats.count.dropped++
		s.stats.stale = true
	}
	return token, ok
}

// Abandon gives up everything that is sent and not acknowledged, and the connection with it: Done tells of it as soon as nothing is posted any more.
// Until then nothing can be sent. The receiver then sees a new session.
func (s *Sender) Abandon() {
	s.giveUp = true
	switch {
	case s.link != nil:
		s.fail(ErrAbandoned)
	case s.ending == nil:
		s.abandon()
	}
}

func (s *Sender) abandon() {
	s.gap = s.gap || s.out.inFlight() > 0
	s.stats.count.dropped += uint64(s.out.abandon())
	s.giveUp = false
}

// ErrAbandoned is the cause of a connection's end that Abandon wanted.
var ErrAbandoned = errors.New("the receiver was too slow, and was given up")

// Queued is how many messages were sent and not told of as done.
func (s *Sender) Queued() int { return s.config.slots() - len(s.out.free) + int(s.out.made-s.out.told) }

// Close gives the sender's frames back. Run has returned before. Messages that are sent and not acknowledged are lost, and their frames are not
// used any more. After an error it may be called again.
func (s *Sender) Close() error {
	var errs []error
	for _, l := range []*link{s.link, s.ending} {
		if l != nil {
			errs = append(errs, l.pair.Close())
		}
	}
	if s.queue != nil {
		errs = append(errs, s.queue.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close sender %s: %w", s.config.Name, err) // the device may still use the frames
	}
	s.link, s.ending, s.queue = nil, nil, nil
	if s.holder != nil {
		s.holder.Close()
		s.holder = nil
	}
	return nil
}
