package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// AppendConfig says what an Appender is for.
type AppendConfig struct {
	Address string // of the flow: host:port
	Flow    string // its name; empty: whichever is served there
	Message int    // the longest message in bytes; default 2048
	Depth   int    // messages that may be sent and not acknowledged; default 256
	// Method is how messages go; default as the flow takes them.
	Method stream.Method
	// Participant says which one of several clients this is, to a flow that adds up the messages of all: from 1 on. It stays the same when the client starts again.
	Participant uint32
	Feed        Feeder // gives the messages, instead of Send; nil: Send does
}

// Receipt is what a flow said of messages that it has.
type Receipt struct {
	Number   uint64 // of the message, as Send gave it
	Position uint64 // in the log, of the last message that the acknowledgement was for; 0 where there is no log
}

// Appender sends messages to one flow, in order and each once, over as many connections as it takes.
type Appender struct {
	client *Client
	config AppendConfig
	sender *stream.Sender
	frames []umem.Frame
	free   chan umem.Frame // of Send
	queue  chan outgoing
	next   *outgoing // taken from the queue, not sent yet; the loop's
	held   []umem.Frame
	done   [64]stream.Result

	places   bufferLayout  // with a Feeder: where messages lie in the frames
	one      [1]umem.Frame // and of the loop: the message that is sent,
	fed      uint64        // how many were,
	returned uint64        // and how many are acknowledged

	filling sync.RWMutex // held while a message is put into its frame
	closed  bool         // under filling: the frames are not this appender's any more
	sending sync.Mutex   // held while a message gets its number and its place in the queue
	sent    uint64
	mu      sync.Mutex
	known   Receipt
	up      bool
	failed  error
	news    chan struct{} // closed when known, up or failed changed

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

// Append opens an Appender, and waits until it is connected or ctx ends. The caller closes it.
func (k *Client) Append(ctx context.Context, c AppendConfig) (*Appender, error) {
	c.Message, c.Depth = cmp.Or(c.Message, 2048), cmp.Or(c.Depth, 256)
	a := &Appender{client: k, config: c, free: make(chan umem.Frame, c.Depth), queue: make(chan outgoing, c.Depth),
		held: make([]umem.Frame, c.Depth), news: make(chan struct{}), ran: make(chan struct{})}
	if err := a.open(); err != nil {
		return nil, fmt.Errorf("append to %s at %s: %w", c.Flow, c.Address, err)
	}
	if err := a.await(ctx, func() bool { return a.up }); err != nil {
		return nil, errors.Join(fmt.Errorf("append to %s at %s: %w", c.Flow, c.Address, a.because(err)), a.Close())
	}
	return a, nil
}

func (a *Appender) open() (err error) {
	k := a.client
	a.places = a.config.bufferLayout()
	if a.frames, err = k.take(a.places.frames(), uint64(a.config.Message)); err != nil {
		return err
	}
	err = k.loop.do(func() (err error) {
		a.sender, err = stream.OpenSender(stream.SenderConfig{
			Name: "client", Endpoint: k.endpoint, Worker: k.hands, Address: a.config.Address, Flow: a.config.Flow,
			Connect: connect.Config{Credentials: k.config.Credentials}, Participant: a.config.Participant, Depth: a.config.Depth, Spares: a.places.count - a.config.Depth,
			Message: uint32(a.config.Message) + protocol.HeaderLen, Frames: 1, Method: a.config.Method, Log: k.config.log(),
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

// end notes why the sender ended.
func (a *Appender) end(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = cmp.Or(err, errClosed)
	a.tell()
}

// tell wakes those that wait. The lock is held.
func (a *Appender) tell() {
	close(a.news)
	a.news = make(chan struct{})
}

// Send copies a message into the region and sends it. It waits while Depth messages are not acknowledged. The number
// it returns is one more each time, from 1.
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
	a.queue <- o // it has room for as many as there are frames
	return o.number, nil
}

// Wait waits until a message is acknowledged: as durable as the flow promises.
func (a *Appender) Wait(ctx context.Context, number uint64) (Receipt, error) {
	err := a.await(ctx, func() bool { return a.known.Number >= number })
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known, a.because(err)
}

// because adds why there is no connection.
func (a *Appender) because(err error) error {
	if cause := a.sender.Stats().Cause; err != nil && cause != "" {
		return fmt.Errorf("%w: %s", err, cause)
	}
	return err
}

// await waits until the condition, asked under the lock, is true.
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

// Stats are the sender's.
func (a *Appender) Stats() stream.SenderStats { return a.sender.Stats() }

// poll sends what waits and takes what is acknowledged.
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

// push gives the sender what it has room for.
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

// take gives frames back that the device is done with, and says which messages the receiver has.
func (a *Appender) take() bool {
	n := a.sender.Done(a.done[:])
	for _, r := range a.done[:n] {
		a.free <- a.held[r.Token%uint64(len(a.held))]
	}
	number, position := a.sender.Acknowledged()
	up, news := a.sender.Connected(), number != a.known.Number
	if !news && up == a.up { // which nobody else changes
		return n > 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known = Receipt{Number: number, Position: position}
	a.up = up
	a.tell()
	return true
}

// Close ends the connection and gives the frames back. What is not acknowledged may or may not have arrived: Wait says.
// Closing again does nothing.
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
	return errors.Join(k.loop.remove(a), k.loop.do(a.sender.Close), k.give(a.frames))
}

// bufferLayout are where the messages of an Appender lie: a frame or an extent each, or several short ones of a Feeder's in a frame.
type bufferLayout struct {
	count int    // messages
	each  int    // in a frame
	bytes uint64 // from one in a frame to the next
}

const (
	// line is how many bytes a line of the processor's caches has.
	line = 64
	// spares is how many messages more than Depth a Feeder's may be with the device: RoCE in software says of up to 16 together that they have
	// arrived, and that a few more have is known later.
	spares = 24
)

func (c *AppendConfig) bufferLayout() bufferLayout {
	p := bufferLayout{count: c.Depth, each: 1, bytes: frameSize}
	if c.Feed == nil || c.Message > frameSize { // extents are few, so there are no spare ones
		return p
	}
	p.bytes = (max(1, uint64(c.Message)) + line - 1) / line * line
	p.each = int(frameSize / p.bytes)
	p.count += spares
	return p
}

// frames is how many there must be.
func (p *bufferLayout) frames() int { return (p.count + p.each - 1) / p.each }

// at is the place of a message by its number in frames, or extents, of which there are enough.
func (p *bufferLayout) at(frames []umem.Frame, number uint64) umem.Frame {
	n := int(number % uint64(p.count))
	return umem.Frame{Addr: frames[n/p.each].Addr + uint64(n%p.each)*p.bytes}
}
