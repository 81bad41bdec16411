package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// AppendConfig configures an Appender.
type AppendConfig struct {
	Address string // of the flow: host:port
	// Others are the addresses of the other members, if the flow is a member of a group. The client
	// appends to the one that leads.
	Others []string
	Flow   string // its name; empty: any
	// Peer is NAME/FLOW, the names of a daemon and of its flow, which Config.Names finds; Address and Flow are empty
	// then, and Others are named so, too. When the flow moves to another address, the Appender follows: what was not
	// acknowledged is sent again, once. With TLS the daemon needs a certificate that is valid for NAME.
	Peer string
	// Paths are further ways to the flow, if Device and Address fail, in the order of preference. What was not acknowledged
	// is sent again over the next one, once. They exclude Peer. If the flow is a member of a group, each path leads to all
	// members: a leader that cannot be reached over one path is tried over the others, and then the other members.
	Paths []Path
	// Active sends over Device and all Paths at the same time, if the flow restores the order. Otherwise one of them is
	// used at a time. It excludes Others: members of a group take messages over one path at a time.
	Active  bool
	Message int // the longest message in bytes; default 2048
	Depth   int // the maximum number of unacknowledged messages; default 256
	// Method is how messages reach the flow; default: the flow decides.
	Method stream.Method
	// Participant identifies this client to a flow that adds up the messages of several clients:
	// from 1 on. It must stay the same over restarts.
	Participant uint32
	Feed        Feeder // provides the messages instead of Send; nil: use Send
}

// Path is a further way to a flow.
type Path struct {
	Device  string   // one of Config.Further, or Config.Device
	Address string   // of the flow: host:port
	Others  []string // of the other members of its group, in the order of AppendConfig.Others
}

// Receipt is a flow's acknowledgement of a message.
type Receipt struct {
	Number uint64 // of the message, as Send returned it
	// Position is the place in the log of the last message that the acknowledgement covers. It is 0 without
	// a log, and may be 0 after the client has connected again.
	Position uint64
}

// Appender sends messages to one flow, each once and in order, over as many connections as
// necessary.
type Appender struct {
	client *Client
	config AppendConfig
	where  where
	sender *stream.Sender
	frames []umem.Frame
	free   chan umem.Frame // frames for Send
	queue  chan outgoing
	next   *outgoing // taken from the queue and not sent yet; loop only
	held   []umem.Frame
	done   [64]stream.Result

	places   bufferLayout  // with a Feeder: the places of messages in frames
	one      [1]umem.Frame // loop only: the message being sent
	fed      uint64        // messages sent
	returned uint64        // messages acknowledged

	filling sync.RWMutex // held while a message is copied into its frame
	closed  bool         // under filling: the frames are given back
	sending sync.Mutex   // held while a message gets its number and is queued
	sent    uint64
	mu      sync.Mutex
	known   Receipt
	up      bool
	failed  error
	news    chan struct{} // closed when known, up or failed changes

	cancel context.CancelFunc
	ran    chan struct{}
}

// outgoing is a message between Send and the loop.
type outgoing struct {
	frame    umem.Frame
	checksum uint32
	stamp    uint64
	number   uint64
}

// Append opens an Appender, and waits until it is connected or ctx ends: while the daemon is away it tries again, for ever
// with [context.Background]. A name must lead somewhere by then. The caller closes it.
func (k *Client) Append(ctx context.Context, c AppendConfig) (*Appender, error) {
	c.Message, c.Depth = cmp.Or(c.Message, 2048), cmp.Or(c.Depth, 256)
	a := &Appender{client: k, config: c, free: make(chan umem.Frame, c.Depth), queue: make(chan outgoing, c.Depth),
		held: make([]umem.Frame, c.Depth), news: make(chan struct{}), ran: make(chan struct{})}
	var err error
	if a.where, err = (where{address: c.Address, others: c.Others, flow: c.Flow, peer: c.Peer}).find(k.config.Names); err != nil {
		return nil, fmt.Errorf("append to %v: %w", a.where, err)
	}
	if err := a.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("append to %v: %w", a.where, err), a.where.close())
	}
	if err := a.await(ctx, func() bool { return a.up }); err != nil {
		return nil, errors.Join(fmt.Errorf("append to %v: %w", a.where, a.because(err)), a.Close())
	}
	return a, nil
}

func (a *Appender) open() (err error) {
	k := a.client
	a.places = a.config.bufferLayout()
	if a.frames, err = k.take(a.places.frames(), uint64(a.config.Message)); err != nil {
		return err
	}
	paths, err := k.paths(a.config.Paths)
	if err != nil {
		return errors.Join(err, k.give(a.frames))
	}
	err = k.loop.do(func() (err error) {
		a.sender, err = stream.OpenSender(stream.SenderConfig{
			Name: "client", Endpoint: k.endpoint, Worker: k.hands, Address: a.where.address, Others: a.where.others, Places: a.where.senders(), Flow: a.where.flow,
			Device: k.config.Device, Paths: paths, Active: a.config.Active,
			Connect: connect.Config{Credentials: k.config.Credentials}, Participant: a.config.Participant, Depth: a.config.Depth, Spares: a.places.count - a.config.Depth,
			Message: uint32(a.config.Message) + protocol.HeaderLen, Frames: 1, Method: a.config.Method, Events: true, OnArm: true, Log: k.config.log(),
		})
		return err
	})
	if err != nil {
		return errors.Join(err, k.give(a.frames))
	}
	if a.config.Feed == nil {
		for _, f := range a.frames {
			a.free <- f
		}
	}
	var ctx context.Context
	ctx, a.cancel = context.WithCancel(context.Background())
	go func() { defer close(a.ran); a.end(a.sender.Run(ctx, k.loop.do)) }()
	return k.loop.add(a)
}

// paths returns the further ways to a flow.
func (k *Client) paths(all []Path) (paths []stream.Path, err error) {
	for _, p := range all {
		e := k.further[p.Device]
		switch {
		case p.Device == k.config.Device:
			e = k.endpoint
		case e == nil:
			return nil, fmt.Errorf("path to %s: device %s is not open: add it to Config.Further", p.Address, p.Device)
		}
		paths = append(paths, stream.Path{Device: p.Device, Endpoint: e, Address: p.Address, Others: p.Others})
	}
	return paths, nil
}

// end records why the sender ended.
func (a *Appender) end(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = cmp.Or(err, errClosed)
	a.tell()
}

// tell wakes the waiting goroutines. The caller holds the lock.
func (a *Appender) tell() {
	close(a.news)
	a.news = make(chan struct{})
}

// Send copies a message into the region and sends it. It blocks while Depth messages are
// unacknowledged. The numbers that it returns begin at 1 and have no gaps.
func (a *Appender) Send(ctx context.Context, message []byte) (number uint64, err error) {
	if a.config.Feed != nil {
		return 0, errFed
	}
	if len(message) > a.config.Message {
		return 0, fmt.Errorf("send %d bytes: a message has at most %d: raise AppendConfig.Message", len(message), a.config.Message)
	}
	var f umem.Frame
	select {
	case f = <-a.free:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-a.ran:
		return 0, errClosed
	}
	a.filling.RLock()
	defer a.filling.RUnlock()
	if a.closed {
		return 0, errClosed
	}
	f.Len = uint32(len(message))
	copy(a.client.region.Bytes(f), message)
	o := outgoing{frame: f, checksum: protocol.Checksum(message), stamp: uint64(time.Now().UnixNano())}
	a.sending.Lock()
	defer a.sending.Unlock()
	a.sent++
	o.number = a.sent
	a.queue <- o // does not block: it has room for all frames
	a.client.loop.wake()
	return o.number, nil
}

// Wait waits until a message is acknowledged with the durability of the flow.
func (a *Appender) Wait(ctx context.Context, number uint64) (Receipt, error) {
	err := a.await(ctx, func() bool { return a.known.Number >= number })
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known, a.because(err)
}

// because adds the cause of the lack of a connection to an error.
func (a *Appender) because(err error) error {
	if cause := a.sender.Stats().Cause; err != nil && cause != "" {
		return fmt.Errorf("%w: %s", err, cause)
	}
	return err
}

// await waits until ok returns true. ok is called with the lock held.
func (a *Appender) await(ctx context.Context, ok func() bool) error {
	for {
		a.mu.Lock()
		good, failed, news := ok(), a.failed, a.news
		a.mu.Unlock()
		switch {
		case good:
			return nil
		case failed != nil:
			return failed
		}
		select {
		case <-news:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Stats returns the counters of the sender.
func (a *Appender) Stats() stream.SenderStats { return a.sender.Stats() }

// poll sends queued messages and processes acknowledgements.
func (a *Appender) poll(now time.Time) (moved bool) {
	if a.config.Feed != nil {
		return a.pollFed(now)
	}
	moved = a.push()
	if err := errors.Join(a.sender.Poll(now), a.sender.Kick()); err != nil {
		a.end(err)
	}
	return a.take() || moved
}

func (a *Appender) arm() bool { return a.sender.Arm() }

func (a *Appender) fds(dst []unix.PollFd) []unix.PollFd { return a.sender.FDs(dst) }

// push passes messages to the sender while it has room.
func (a *Appender) push() (moved bool) {
	for {
		if a.next == nil {
			select {
			case o := <-a.queue:
				a.next = &o
			default:
				return moved
			}
		}
		o := a.next
		if !a.sender.Send([]umem.Frame{o.frame}, o.frame.Len, o.checksum, o.stamp, o.number) {
			return moved
		}
		a.held[o.number%uint64(len(a.held))] = o.frame
		a.next, moved = nil, true
	}
}

// take takes back the frames of messages that the device has finished with, and records which
// messages the receiver has acknowledged.
func (a *Appender) take() bool {
	n := a.sender.Done(a.done[:])
	for _, r := range a.done[:n] {
		a.free <- a.held[r.Token%uint64(len(a.held))]
	}
	number, position := a.sender.Acknowledged()
	up, news := a.sender.Connected(), number != a.known.Number
	if !news && up == a.up { // read without the lock: only this thread writes up
		return n > 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known = Receipt{Number: number, Position: position}
	a.up = up
	a.tell()
	return true
}

// Close ends the connection and gives the frames back. Messages without an acknowledgement may or
// may not have arrived; Wait then says whether a message was acknowledged. A second Close does
// nothing.
func (a *Appender) Close() error {
	a.cancel()
	<-a.ran
	a.filling.Lock()
	closed := a.closed
	a.closed = true
	a.filling.Unlock()
	if closed {
		return nil
	}
	k := a.client
	return errors.Join(k.loop.remove(a), k.loop.do(a.sender.Close), k.give(a.frames), a.where.close())
}

// bufferLayout is the arrangement of an Appender's messages in memory: one per frame or extent, or
// several short ones of a Feeder in a frame.
type bufferLayout struct {
	count int    // messages
	each  int    // in a frame
	bytes uint64 // from one in a frame to the next
}

const (
	// line is the size of a cache line.
	line = 64
	// spares is the number of messages beyond Depth that a Feeder may have in the device. RoCE in
	// software completes up to 16 together, and a few more later.
	spares = 24
)

func (c *AppendConfig) bufferLayout() bufferLayout {
	p := bufferLayout{count: c.Depth, each: 1, bytes: frameSize}
	if c.Feed == nil || c.Message > frameSize { // extents are scarce, so there are no spares
		return p
	}
	p.bytes = (max(1, uint64(c.Message)) + line - 1) / line * line
	p.each = int(frameSize / p.bytes)
	p.count += spares
	return p
}

// frames returns the necessary number of frames or extents.
func (p *bufferLayout) frames() int { return (p.count + p.each - 1) / p.each }

// at returns the place of a message by its number.
func (p *bufferLayout) at(frames []umem.Frame, number uint64) umem.Frame {
	n := int(number % uint64(p.count))
	return umem.Frame{Addr: frames[n/p.each].Addr + uint64(n%p.each)*p.bytes}
}
