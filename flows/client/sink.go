package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// SinkConfig configures a Sink.
type SinkConfig struct {
	Listen  string // where flows connect: host:port
	Flow    string // the name that they must request, if they request one
	Message int    // the longest message in bytes; default: what fits in a frame
	Window  int    // messages that each sender may have in flight; default 64
	Senders int    // the largest number at a time; default 8
	// AllowAnyGID lets a sender's queue pair have another address than its connection.
	AllowAnyGID bool
	Write       bool // senders write messages into granted frames instead of sending them
}

// Message is one message, in the region where it landed.
type Message struct {
	Payload  []byte // valid until the next Receive
	Sequence uint64 // of its session, without gaps
	Session  uint64 // of the sender
	Position uint64 // in the log that it was read from; otherwise 0
	Stamp    time.Time
}

// Sink receives the messages of flows. A message is acknowledged by the next call of Receive.
type Sink struct {
	client   *Client
	config   SinkConfig
	listener *connect.Listener
	receiver *stream.Receiver
	frames   []umem.Frame
	spare    []umem.Frame // loop only
	buffer   [64]umem.Frame
	waiting  []umem.Frame // received and not in the channel yet; loop only
	came     chan umem.Frame
	back     chan umem.Frame
	current  umem.Frame // of the message that Receive returned last
	having   bool

	cancel context.CancelFunc
	served chan struct{}
	err    error // of Serve, once served is closed
}

// mostMessage is the longest message that fits in one frame.
const mostMessage = frameSize - protocol.HeaderLen

// Listen opens a Sink. The caller closes it.
func (k *Client) Listen(ctx context.Context, c SinkConfig) (*Sink, error) {
	c.Message, c.Window, c.Senders = cmp.Or(c.Message, mostMessage), cmp.Or(c.Window, 64), cmp.Or(c.Senders, 8)
	s := &Sink{client: k, config: c, served: make(chan struct{})}
	if err := s.open(ctx); err != nil {
		return nil, fmt.Errorf("listen at %s: %w", c.Listen, err)
	}
	return s, nil
}

func (s *Sink) open(ctx context.Context) (err error) {
	k, c := s.client, s.config
	if s.listener, err = connect.Listen(context.WithoutCancel(ctx), c.Listen, connect.Config{Credentials: k.config.Credentials}); err != nil {
		return err
	}
	room := c.Window * (c.Senders + 1)
	if s.frames, err = k.take(room, uint64(c.Message)+protocol.HeaderLen); err != nil {
		return errors.Join(err, s.listener.Close())
	}
	s.came, s.back = make(chan umem.Frame, room), make(chan umem.Frame, room)
	s.waiting = make([]umem.Frame, 0, len(s.buffer))
	s.spare = append([]umem.Frame(nil), s.frames...)
	err = k.loop.do(func() (err error) {
		s.receiver, err = stream.OpenReceiver(stream.ReceiverConfig{
			Name: "sink", Endpoint: k.endpoint, Worker: k.hands, Flow: c.Flow, Message: uint32(c.Message) + protocol.HeaderLen,
			Window: c.Window, Peers: c.Senders, Durability: protocol.Received, Check: true, Write: c.Write, Events: true, OnArm: true, AllowAnyGID: c.AllowAnyGID, Log: k.config.log(),
		})
		return err
	})
	if err != nil {
		return errors.Join(err, k.give(s.frames), s.listener.Close())
	}
	serving, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go func() { defer close(s.served); s.err = s.receiver.Serve(serving, s.listener, k.loop.do) }()
	return k.loop.add(s)
}

// Addr returns the address on which the Sink listens.
func (s *Sink) Addr() net.Addr { return s.listener.Addr() }

// Receive waits for a message. It acknowledges the previous one, whose Payload is no longer valid.
// Only one goroutine may call it at a time.
func (s *Sink) Receive(ctx context.Context) (Message, error) {
	s.release()
	select {
	case f := <-s.came:
		s.current, s.having = f, true
		return s.describe(f), nil
	case <-ctx.Done():
		return Message{}, context.Cause(ctx)
	case <-s.served:
		return Message{}, cmp.Or(s.err, errClosed)
	}
}

// release returns the frame of the last message to the loop.
func (s *Sink) release() {
	if s.having {
		s.back <- s.current // does not block: it has room for all frames
		s.client.loop.wake()
		s.having = false
	}
}

func (s *Sink) describe(f umem.Frame) Message {
	b := s.client.region.Bytes(f)
	d, _ := protocol.ParseData(b) // succeeds: the receiver has checked it
	return Message{Payload: b[protocol.HeaderLen:], Sequence: d.Sequence, Session: d.Session, Position: d.Position, Stamp: time.Unix(0, int64(d.Stamp))}
}

// Stats returns the counters of the receiver.
func (s *Sink) Stats() stream.ReceiverStats { return s.receiver.Stats() }

// poll passes messages to Receive, and takes frames back.
func (s *Sink) poll(now time.Time) (moved bool) {
	moved = s.takeBack()
	s.spare = s.spare[s.receiver.Supply(s.spare):]
	if len(s.waiting) == 0 {
		n := s.receiver.Recv(s.buffer[:])
		s.waiting = append(s.waiting[:0], s.buffer[:n]...)
	}
	for len(s.waiting) > 0 {
		select {
		case s.came <- s.waiting[0]:
			s.waiting, moved = s.waiting[1:], true
			continue
		default:
		}
		break
	}
	if err := s.receiver.Poll(now); err != nil {
		s.cancel() // the device is gone: ends Serve, and Receive returns the error
	}
	return moved
}

func (s *Sink) arm() bool { return s.receiver.Arm() }

func (s *Sink) fds(dst []unix.PollFd) []unix.PollFd { return s.receiver.FDs(dst) }

// takeBack acknowledges the messages that the program has finished with, and supplies their frames
// again.
func (s *Sink) takeBack() (moved bool) {
	for {
		select {
		case f := <-s.back:
			d, _ := protocol.ParseData(s.client.region.Bytes(f))
			s.receiver.Acknowledge(s.client.region.Side(f).Queue, d.Sequence, d.Position)
			start, _ := s.client.region.Start(f)
			s.spare, moved = append(s.spare, umem.Frame{Addr: start, Len: f.Len}), true
		default:
			return moved
		}
	}
}

// Close acknowledges the last message, ends the connections and gives the frames back. A second
// Close does nothing.
func (s *Sink) Close() error {
	if s.frames == nil {
		return nil
	}
	s.release()
	s.settle()
	s.cancel()
	<-s.served
	k := s.client
	err := errors.Join(k.loop.remove(s), k.loop.do(s.receiver.Close))
	err = errors.Join(err, k.give(s.left()), s.listener.Close())
	s.frames = nil
	return err
}

// settleTimeout limits the time for which Close waits until the acknowledgements are sent.
const settleTimeout = 3 * time.Second

// settle waits until every acknowledgement is sent, up to settleTimeout. Closing a connection then
// waits until its acknowledgements have arrived.
func (s *Sink) settle() {
	for end := time.Now().Add(settleTimeout); time.Now().Before(end); sleep(sleepInterval) {
		idle := false
		err := s.client.loop.do(func() error { idle = len(s.back) == 0 && s.receiver.Idle(); return nil })
		if idle || err != nil {
			return
		}
	}
}

// left returns the frames that the Sink still had when its receiver was closed. The receiver has
// given back its own.
func (s *Sink) left() []umem.Frame {
	all := append(s.spare, s.waiting...)
	for {
		select {
		case f := <-s.came:
			all = append(all, f)
		case f := <-s.back:
			all = append(all, f)
		default:
			return all
		}
	}
}
