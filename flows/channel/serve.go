package channel

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// visit is a peer in Serve's goroutine.
type visit struct {
	*Receiver
	at      *port
	do      stream.Doer
	request *connect.Request
	hello   protocol.Hello
	end     context.CancelFunc
	in      *inLink
	memory  rdma.MemoryRegion // the slots, for this peer
	begin   uint64
	unread  uint64 // first message that readers for which the writer waits have not read; 0: the peer takes no such number
}

// Serve lets peers in until ctx ends, over each device by its listener. do runs functions on the worker's thread. The
// caller closes the listeners. The error says that no more can be accepted.
func (r *Receiver) Serve(ctx context.Context, listeners []*connect.Listener, do stream.Doer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(r.ports))
	for i, p := range r.ports {
		go func() {
			ended <- r.accept(ctx, p, listeners[i], do)
			cancel() // without one device the flow ends, as it does with a single one
		}()
	}
	var errs []error
	for range r.ports {
		errs = append(errs, <-ended)
	}
	return errors.Join(errs...)
}

// accept lets peers in over a device.
func (r *Receiver) accept(ctx context.Context, p *port, l *connect.Listener, do stream.Doer) error {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		q, err := l.Accept(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receiver %s: accept peers: %w", r.config.Name, err)
		}
		all.Go(func() { r.serve(ctx, p, q, do) })
	}
}

var errReplaced = errors.New("another connection takes its place")

// serve serves a peer until it is gone.
func (r *Receiver) serve(ctx context.Context, p *port, q *connect.Request, do stream.Doer) {
	log := r.config.Log.With("receiver", r.config.Name, "device", p.endpoint.Device.Name(), "peer", q.Peer().String())
	v := &visit{Receiver: r, at: p, do: do, request: q}
	if err := v.greet(); err != nil {
		v.refuse(err)
		log.Warn("the peer of a channel was refused", protocol.LogReason(err), "err", err)
		return
	}
	ctx, v.end = context.WithCancel(ctx)
	defer v.end()
	// A handshake over a path that has failed meanwhile must not keep the next one waiting.
	defer context.AfterFunc(ctx, q.Cancel)()
	if before := r.present.Swap(v); before != nil {
		before.end()
	}
	r.turn.Lock()
	defer r.turn.Unlock()
	defer r.present.CompareAndSwap(v, nil)
	if ctx.Err() != nil {
		v.refuse(errReplaced)
		return
	}
	conn, err := v.connect()
	if err != nil {
		v.refuse(err)
		log.Warn("the peer of a channel did not connect", protocol.LogReason(err), "err", err)
		return
	}
	log.Info("the peer of a channel is connected", "next", v.begin)
	err = v.watch(ctx, conn)
	cause, lerr := v.leave()
	if cause != nil {
		err = cause
		p.broken.Add(1)
	}
	_ = conn.SetDeadline(time.Now().Add(finalTime)) // fails only if it is closed
	_ = conn.Send([]byte(err.Error()))              // it may be gone
	log.Info("the peer of a channel has left", protocol.LogReason(err), "err", errors.Join(err, lerr, conn.Close()))
}

// refuse counts and refuses a request, unless it was answered already.
func (v *visit) refuse(err error) {
	if why, is := errors.AsType[protocol.Reason](err); is {
		v.stats.mu.Lock()
		v.stats.refused[why]++
		v.stats.mu.Unlock()
	}
	_ = v.request.Refuse(err.Error()) // fails only if the request was answered already
}

// mostAhead is the greatest sequence that a peer may name.
const mostAhead = 1 << 62

// greet checks a peer's hello.
func (v *visit) greet() (err error) {
	c := &v.config
	if v.hello, err = protocol.ParseHello(v.request.Remote().Hello); err != nil {
		return err
	}
	slots, slot := c.Inlet.Slots()
	switch h := &v.hello; {
	case h.Role != protocol.RoleChannel:
		return fmt.Errorf("%w: flow %q takes a channel, and the peer wants %v", protocol.NotPermitted, c.Flow, h.Role)
	case h.Flow != "" && h.Flow != c.Flow:
		return fmt.Errorf("%w: flow %q is not served here, but %q", protocol.NotPermitted, h.Flow, c.Flow)
	case h.Window != slots || h.Message != slot:
		return fmt.Errorf("%w: the channel has %d slots of %d bytes there, and %d of %d here: make both equal", protocol.BadLength, h.Window, h.Message, slots, slot)
	case h.Session == 0:
		return fmt.Errorf("%w: numbering 0 is none", protocol.BadSession)
	case h.Next == 0 || h.Size >= mostAhead || h.Next > h.Size+1:
		return fmt.Errorf("%w: messages from %d to %d", protocol.BadSequence, h.Next, h.Size)
	}
	if !c.AllowAnyGID {
		if err := v.at.endpoint.CheckGID(v.request); err != nil {
			return err
		}
	}
	if c.Permit != nil {
		if err := c.Permit(v.request.Peer(), v.hello); err != nil {
			return fmt.Errorf("%w: %w", protocol.NotPermitted, err)
		}
	}
	return nil
}

// connect makes a queue pair for the peer and connects it. No other peer is connected.
func (v *visit) connect() (*connect.Conn, error) {
	if err := v.agree(); err != nil {
		return nil, err
	}
	e, err := v.prepare()
	if err != nil {
		return nil, err
	}
	if err := v.do(func() error { v.join(); return nil }); err != nil {
		return nil, errors.Join(err, v.closeQueue())
	}
	conn, err := v.request.Accept(e)
	if err != nil {
		_, lerr := v.leave()
		return nil, errors.Join(err, lerr)
	}
	v.config.Inlet.Connected(true)
	v.stats.connections.Add(1)
	v.at.connections.Add(1)
	v.stats.mu.Lock()
	v.stats.peer, v.stats.since = v.request.Peer().String(), time.Now()
	v.stats.mu.Unlock()
	return conn, nil
}

// agree finds the first message to write, and prepares the ring.
func (v *visit) agree() error {
	h, ring := &v.hello, v.ring
	last := ring.Last()
	switch known := ring.Numbering() == h.Session; {
	case !known:
		v.begin = h.Size + 1
		v.stats.renumbered.Add(1)
	// A connection over another path may have carried more since the peer wrote its hello. It checks the answer itself.
	case last > h.Size && v.served != h.Session:
		return fmt.Errorf("%w: message %d has arrived here, and the last one there is %d", protocol.BadSequence, last, h.Size)
	default:
		v.begin = max(last+1, h.Next)
		v.stats.gaps.Add(v.begin - last - 1)
	}
	v.served = h.Session
	return v.do(func() error { // no worker publishes meanwhile
		v.arrived = v.begin - 1
		return nil
	})
}

// prepare makes a queue pair in INIT with its receives, and grants the slots to the peer.
func (v *visit) prepare() (e connect.End, err error) {
	at, known := v.at.endpoint, v.ring.Numbering() == v.hello.Session
	v.config.Inlet.Begin(v.hello.Session, v.begin-1)
	told := v.begin - 1
	if v.hello.Capabilities&protocol.CapabilityRead != 0 {
		if known {
			told = v.config.Inlet.Acknowledged(told)
		}
		v.unread = told + 1
	}
	if e.Settings, err = at.Settings(v.request.Local(), v.request.Remote().Parameters.GID.Addr()); err != nil {
		return e, err
	}
	e.Settings.Access = rdma.RemoteWrite // of the slots
	if e.Queue, err = v.at.domain.NewQueuePair(rdma.QueuePairConfig{Transport: rdma.RC, SendCQ: v.at.done.Queue, ReceiveCQ: v.at.done.Queue,
		SendDepth: 2, RecvDepth: maxSignals, SendSGEs: 1, RecvSGEs: 1}); err != nil {
		return e, err
	}
	v.in = &inLink{at: v.at, pair: e.Queue, number: e.Queue.QPN(), told: ack{acknowledged: told}, broken: make(chan struct{}, 1)}
	if err := v.grant(&e); err != nil {
		return e, errors.Join(err, v.closeQueue())
	}
	return e, nil
}

// grant grants the slots, posts receives and makes the hello.
func (v *visit) grant(e *connect.End) (err error) {
	at := v.at.endpoint
	slots, slot := v.config.Inlet.Slots()
	length := uint64(slots) * uint64(slot)
	if v.memory, err = v.at.domain.RegisterPart(at.Region, v.config.Inlet.Base()+wire.ChannelHeader, length, rdma.LocalWrite|rdma.RemoteWrite); err != nil {
		return err
	}
	e.Grants = []connect.Grant{{Name: grantName, RKey: v.memory.RKey(), Addr: v.memory.Addr(), Length: length, Access: rdma.RemoteWrite}}
	if e.Parameters, err = connect.Prepare(at.Device, e.Queue, e.Settings); err != nil {
		return err
	}
	if _, err := e.Queue.PostReceive(make([]rdma.ReceiveRequest, maxSignals), nil); err != nil {
		return fmt.Errorf("post receives: %w", err)
	}
	h := protocol.Hello{Role: protocol.RoleChannel, Flow: v.config.Flow, Message: slot, Window: slots, Session: v.hello.Session, Next: v.begin, Size: v.unread}
	if v.unread > 0 {
		h.Capabilities = protocol.CapabilityRead
	}
	e.Hello, err = h.Append(nil)
	return err
}

// join makes the connection the worker's.
func (v *visit) join() {
	v.Receiver.in, v.arrived, v.again = v.in, v.begin-1, v.again[:0]
}

// watch waits for the end of a connection, and returns the cause.
func (v *visit) watch(ctx context.Context, conn *connect.Conn) error {
	left := make(chan error, 1)
	go func() { left <- listen(conn) }()
	select {
	case err := <-left:
		if strings.Contains(err.Error(), errSlow.Error()) {
			v.config.Inlet.Cut()
		}
		return err
	case <-v.in.broken:
		return protocol.Closing // the worker knows the cause
	case <-ctx.Done():
	}
	_ = conn.SetDeadline(time.Now())
	<-left
	_ = conn.SetDeadline(time.Time{})
	if v.present.Load() != v {
		return errReplaced
	}
	return protocol.Closing
}

// leave ends the connection. It returns the cause that the worker knows, or nil.
func (v *visit) leave() (cause, err error) {
	err = v.do(func() error {
		cause = v.in.cause
		v.Receiver.in = nil
		return nil
	})
	v.config.Inlet.Connected(false)
	v.stats.mu.Lock()
	v.stats.peer = ""
	v.stats.mu.Unlock()
	return cause, errors.Join(err, v.closeQueue())
}

// closeQueue closes the queue pair, and then takes the slots back: the peer cannot write any more.
func (v *visit) closeQueue() error {
	err := v.in.pair.Close()
	if v.memory != nil {
		err = errors.Join(err, v.memory.Close())
	}
	return err
}
