package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/rdma/mr"
)

// Serve accepts peers until ctx ends. It then ends all peers and sends them the reason that the
// receiver is closing. It closes the Listener, and returns when the last peer is gone; the error is
// nil if ctx ended. Only one Serve runs at a time. do must work, and the worker must call Poll,
// until Serve has returned. Close takes down the rest.
func (r *Receiver) Serve(ctx context.Context, l *connect.Listener, do Doer) error {
	ctx, cancel := context.WithCancel(ctx)
	v := &server{Receiver: r, ctx: ctx, do: do}
	err := v.accept(l)
	cancel()
	end := l.Close() // also ends its handshakes
	v.all.Wait()
	if err = errors.Join(err, end); err != nil {
		return fmt.Errorf("serve receiver %s: %w", r.config.Name, err)
	}
	return nil
}

// accept starts a goroutine for each peer that connects.
func (v *server) accept(l *connect.Listener) error {
	for {
		q, err := l.Accept(v.ctx)
		switch {
		case v.ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		v.all.Go(func() { v.serve(q) })
	}
}

// server is the common state of the goroutines of Serve. They call the Receiver's methods through
// do, except those that any goroutine may call.
type server struct {
	*Receiver
	ctx context.Context
	do  Doer
	all sync.WaitGroup

	standing atomic.Int64 // peers that stand by
}

// ask runs a function on the worker's thread and returns its value.
func ask[T any](do Doer, f func() (T, error)) (value T, err error) {
	err = do(func() (err error) {
		value, err = f()
		return err
	})
	return value, err
}

// serve handles one peer from its request to its end.
func (v *server) serve(q *connect.Request) {
	log := v.config.Log.With("receiver", v.config.Name, "peer", q.Peer().Addr.String(), "certificate", q.Peer().Name)
	if v.replicates(q) {
		return
	}
	h, err := v.greet(q)
	if err != nil {
		v.turnAway(q, err)
		level := slog.LevelWarn
		if errors.Is(err, protocol.NotLeader) { // it asks the other members; Stats counts it
			level = slog.LevelDebug
		}
		log.Log(v.ctx, level, "peer refused", protocol.LogReason(err), "err", err)
		return
	}
	log = log.With("session", fmt.Sprintf("%016x", h.Session))
	if h.Capabilities&protocol.CapabilityStandby != 0 && v.config.Standby != nil {
		v.standBy(q, &h, log)
		return
	}
	if h.Capabilities&protocol.CapabilityAsk != 0 {
		if err := v.tellNext(q, &h); err != nil {
			v.turnAway(q, err)
			log.Warn("a question for a session was not answered", protocol.LogReason(err), "err", err)
		}
		return
	}
	p, conn, err := v.connect(q, &h)
	if err != nil {
		v.turnAway(q, err)
		log.Warn("peer did not connect", protocol.LogReason(err), "err", err)
		return
	}
	log.Info("peer connected", "next", p.first, "window", p.window)
	left := make(chan error, 1)
	v.all.Go(func() { left <- hear(conn) })
	v.attend(p, conn, left, nil, log)
}

// replicates reports whether a peer is a member of the flow's group, which the flow has answered.
func (v *server) replicates(q *connect.Request) bool {
	if v.config.Replicate == nil {
		return false
	}
	h, err := protocol.ParseHello(q.Remote().Hello)
	if err != nil || h.Role != protocol.RoleReplicate {
		return false // greet refuses what is wrong
	}
	if err := v.checkGID(q); err != nil {
		v.turnAway(q, err)
		v.config.Log.Warn("a member of the group was refused", "receiver", v.config.Name, "peer", q.Peer().Addr.String(), protocol.LogReason(err), "err", err)
		return true
	}
	v.config.Replicate(v.device, q, &h)
	return true
}

// turnAway refuses a request, unless it was answered already.
func (v *server) turnAway(q *connect.Request, err error) {
	if why, is := errors.AsType[protocol.Reason](err); is {
		v.stats.refused[why].Add(1)
	}
	_ = q.Refuse(err.Error()) // fails only if the request was answered already
}

// greet reads a peer's hello. The error says why the peer is refused.
func (v *server) greet(q *connect.Request) (protocol.Hello, error) {
	h, err := protocol.ParseHello(q.Remote().Hello)
	if err == nil {
		err = v.config.admits(&h)
	}
	if err == nil {
		err = v.checkGID(q)
	}
	if err == nil {
		err = v.permit(q.Peer(), h)
	}
	return h, err
}

func (v *server) checkGID(q *connect.Request) error {
	if v.config.AllowAnyGID {
		return nil
	}
	return v.config.Endpoint.CheckGID(q)
}

// permit calls ReceiverConfig.Permit.
func (v *server) permit(peer connect.Peer, h protocol.Hello) error {
	err := v.config.Permit(peer, h)
	if _, is := errors.AsType[protocol.Reason](err); err != nil && !is {
		return fmt.Errorf("%w: %w", protocol.NotPermitted, err)
	}
	return err
}

// admits checks a hello.
func (c *ReceiverConfig) admits(h *protocol.Hello) error {
	switch {
	case h.Role != protocol.RoleAppend:
		return fmt.Errorf("%w: flow %q takes messages (role append), and answers no requests", protocol.NotPermitted, c.Flow)
	case h.Flow != "" && h.Flow != c.Flow:
		return fmt.Errorf("%w: flow %q is not served here, but %q", protocol.NotPermitted, h.Flow, c.Flow)
	case h.Session == 0:
		return fmt.Errorf("%w: session 0 is none", protocol.BadSession)
	case h.Message < protocol.HeaderLen:
		return fmt.Errorf("%w: messages of %d bytes are too short for acknowledgements, which have %d", protocol.BadLength, h.Message, protocol.HeaderLen)
	case h.Path() >= protocol.MaxPaths:
		return fmt.Errorf("%w: path number %d of a session: it has at most %d paths, from number 0 on", protocol.BadReserved, h.Path(), protocol.MaxPaths)
	case c.Write && h.Capabilities&protocol.CapabilityWrite == 0:
		return fmt.Errorf("%w: flow %q takes messages by WRITE with immediate alone, and the sender sends (let the sender write, or say method: send here)", protocol.NotPermitted, c.Flow)
	}
	return nil
}

// connect makes a queue pair for a peer and connects it. First it waits until an earlier connection
// of the session is gone.
func (v *server) connect(q *connect.Request, h *protocol.Hello) (*peer, *connect.Conn, error) {
	who := v.config.senderOf(q.Peer(), h)
	if err := v.supersede(&who); err != nil {
		return nil, nil, err
	}
	e, err := v.newEnd(q)
	if err != nil {
		return nil, nil, err
	}
	p, err := v.join(q, h, e.Queue)
	if err != nil {
		return nil, nil, errors.Join(err, e.Queue.Close())
	}
	conn, err := v.answer(q, p, e)
	if err != nil {
		return nil, nil, errors.Join(err, v.takeDown(p, err))
	}
	return p, conn, nil
}

// join makes the worker take over a queue pair.
func (v *server) join(q *connect.Request, h *protocol.Hello, queue rdma.QueuePair) (*peer, error) {
	var g *mr.Cache
	if v.config.Write {
		var err error
		if g, err = v.newGrants(queue); err != nil {
			return nil, err
		}
	}
	p, err := ask(v.do, func() (*peer, error) {
		who := v.config.senderOf(q.Peer(), h)
		return v.attach(queue, g, &who, time.Now().UnixNano())
	})
	if err != nil && g != nil {
		err = errors.Join(err, g.Close())
	}
	return p, err
}

// senderOf returns the identity of a peer.
func (c *ReceiverConfig) senderOf(p connect.Peer, h *protocol.Hello) sender {
	several := h.Capabilities&protocol.CapabilityPaths != 0 && c.orders()
	return sender{session: h.Session, next: h.Next, participant: h.Participant, several: several, path: h.Path(), owner: p.Name, name: nameOf(p)}
}

func nameOf(p connect.Peer) string {
	if p.Name != "" {
		return p.Name
	}
	return p.Addr.String()
}

// supersede ends the present connections of the session that a sender replaces, and waits until they are gone.
func (v *server) supersede(w *sender) error {
	for last := (*peer)(nil); ; {
		old, err := ask(v.do, func() (*peer, error) { return v.replace(w) })
		if err != nil || old == nil || old == last { // attach refuses a session whose connection could not be closed
			return err
		}
		last = old
		select {
		case <-old.away:
		case <-v.ctx.Done():
			return protocol.Closing
		}
	}
}

// newEnd makes a queue pair in INIT.
func (v *server) newEnd(q *connect.Request) (e connect.End, err error) {
	at, to := v.config.Endpoint, netip.Addr{}
	if remote := q.Remote().Parameters.GID; !remote.IsZero() {
		to = remote.Addr()
	}
	if e.Settings, err = at.Settings(q.Local(), to); err != nil {
		return e, err
	}
	e.Settings.Access = rdma.RemoteRead // of no bytes: no memory of the domain may be read
	if v.config.Write {
		e.Settings.Access |= rdma.RemoteWrite // of granted frames only
	}
	if e.Queue, err = at.Domain.NewQueuePair(rdma.QueuePairConfig{Transport: rdma.RC, SendCQ: v.queues[0], ReceiveCQ: v.queues[1],
		Shared: v.shared, SendDepth: v.sends(), SendSGEs: 1, RecvSGEs: 1}); err != nil {
		return e, err
	}
	if e.Parameters, err = connect.Prepare(at.Device, e.Queue, e.Settings); err != nil {
		return e, errors.Join(err, e.Queue.Close())
	}
	return e, nil
}

// answer sends the hello. From then on both sides can send.
func (v *server) answer(q *connect.Request, p *peer, e connect.End) (conn *connect.Conn, err error) {
	h := v.config.hello(p.session.id, p.first, p.window)
	if p.several {
		h.Capabilities |= protocol.WithPath(v.sessions.name)
	}
	if e.Hello, err = h.Append(nil); err != nil {
		return nil, err
	}
	if conn, err = q.Accept(e); err != nil {
		return nil, err
	}
	if err := v.do(func() error { return v.activate(p) }); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

const (
	// finalMessageTime is how long a peer has to receive the final message and those before it: a
	// packet that is lost is retransmitted within a third of it.
	finalMessageTime = time.Second
	// byeTime is the same limit for TCP.
	byeTime = time.Second
	// restTime is the time between Error and close of a queue pair. In this time the device
	// completes the operations that it had begun.
	restTime = 10 * time.Millisecond
	// lookTime is the interval between two checks of the queue pair of a peer that writes. Each wakes the worker.
	lookTime = time.Second
)

var (
	errLeft  = errors.New("the peer left")
	errTalks = errors.New("the peer says something after its hello, which nothing is expected of")
)

// watch waits for the end of a peer, and returns the cause. If the peer is still connected, watch
// sends it the reason. left has why the peer has left, once it has.
func (v *server) watch(p *peer, left <-chan error) error {
	var look <-chan time.Time
	if p.granted != nil {
		tick := time.NewTicker(lookTime)
		defer tick.Stop()
		look = tick.C
	}
	for over := false; !over; {
		select {
		case err := <-left:
			return err
		case <-p.over:
			over = true
		case <-look:
			if err := v.look(p); err != nil {
				return err
			}
		case <-v.ctx.Done():
			if err := v.do(func() error { v.finish(p, protocol.Closing); return nil }); err != nil {
				return err
			}
			over = true
		}
	}
	<-p.over
	finalMessage(p, left)
	return p.cause
}

// look queries the state of the queue pair of a peer that writes. If the device refuses an access,
// no completion reports that.
func (v *server) look(p *peer) error {
	return v.do(func() error { return v.inspect(p) })
}

// hear waits until the peer sends a message, which is an error, or closes the connection.
func hear(conn *connect.Conn) error {
	_, err := conn.Receive()
	switch {
	case err == nil:
		return errTalks
	case errors.Is(err, io.EOF):
		return errLeft
	}
	return err
}

// finalMessage waits until the peer has received its last progress message, or has left.
func finalMessage(p *peer, left <-chan error) {
	late := time.NewTimer(finalMessageTime)
	defer late.Stop()
	select {
	case <-p.said:
	case <-left:
	case <-late.C:
	}
}

// tellEnd sends the cause to a peer over TCP, if it is still connected.
func tellEnd(conn *connect.Conn, why error) {
	_ = conn.SetDeadline(time.Now().Add(byeTime)) // fails only if the connection is closed
	_ = conn.Send([]byte(why.Error()))
}

// takeDown closes a peer's queue pair and frees its slot.
func (v *server) takeDown(p *peer, why error) error {
	defer close(p.away)
	err := v.do(func() error { return v.stop(p, why) })
	time.Sleep(restTime)
	closeQueue, bad := ask(v.do, func() (func() error, error) { return v.part(p) })
	if err = errors.Join(err, bad); closeQueue != nil {
		err = errors.Join(err, closeQueue()) // it may take long
	}
	if err := errors.Join(err, v.do(func() error { return v.detach(p) })); err != nil {
		return fmt.Errorf("take down the queue pair of %s: %w", p.name, err)
	}
	return nil
}
