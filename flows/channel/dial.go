package channel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// Bounds of the time between two attempts to connect.
const (
	leastWait = 50 * time.Millisecond
	mostWait  = 2 * time.Second
	// leastLook and mostLook are the times between two looks whether the channel has a writer.
	leastLook = 5 * time.Millisecond
	mostLook  = 100 * time.Millisecond
	// finalTime is how long the other side has to tell why it ends a connection.
	finalTime = 200 * time.Millisecond
)

// fatalError ends Run.
type fatalError struct{ err error }

func (e *fatalError) Error() string { return e.err.Error() }
func (e *fatalError) Unwrap() error { return e.err }

// Run connects to the peer, and again whenever the connection ends, until ctx ends. The error says that the worker has
// ended. do runs functions on the worker's thread.
func (s *Sender) Run(ctx context.Context, do stream.Doer) (err error) {
	wait, look := leastWait, leastLook
	defer func() {
		s.path.Leaves(nil)
		s.release()
		err = errors.Join(err, s.forgo())
	}()
	for ctx.Err() == nil {
		if !s.config.Outlet.Begun() {
			sleep(ctx, look)
			look = min(2*look, mostLook)
			continue
		}
		began := time.Now()
		err := s.connection(ctx, do)
		if fatal, is := errors.AsType[*fatalError](err); is {
			return fatal.err
		}
		if ctx.Err() != nil {
			break
		}
		if time.Since(began) > mostWait {
			wait = leastWait
		}
		if errors.Is(err, errMoved) {
			s.state.followed.Add(1)
			s.config.Log.Info("the peer of a channel has moved: following it", "sender", s.config.Name)
			continue
		}
		s.tries++
		if s.taken == nil {
			s.tell(err)
		}
		if s.several() && !s.change(err) {
			continue
		}
		select {
		case <-time.After(wait/2 + rand.N(wait)):
		case <-s.changed:
		case <-ctx.Done():
		}
		wait = min(2*wait, mostWait)
	}
	s.state.enter(StateWaiting, "")
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// tell records why there is no connection, and logs it if it is new.
func (s *Sender) tell(cause error) {
	before := s.state.now.Load()
	s.state.failures.Add(1)
	s.state.enter(StateWaiting, cause.Error())
	if before.cause != cause.Error() {
		s.config.Log.Warn("no connection to the peer of a channel: trying again", "sender", s.config.Name, "address", s.address, protocol.LogReason(cause), "err", cause)
	}
}

// connection makes one connection and returns when it ends.
func (s *Sender) connection(ctx context.Context, do stream.Doer) error {
	if err := s.locate(); err != nil {
		return err
	}
	before := s.state.now.Load()
	s.state.now.Store(&stateNow{state: StateConnecting, cause: before.cause})
	there, leave := ctx, func() {}
	if s.config.Place != nil {
		there, leave = stream.Stay(ctx, s.config.Place, s.address)
	}
	defer leave()
	l, conn, err := s.reach(there)
	if stream.Left(there) && err != nil {
		return errMoved
	}
	if err != nil {
		return err
	}
	s.hold(l.acked + 1)
	if err := do(func() error { return s.attach(l) }); err != nil {
		return &fatalError{errors.Join(err, l.pair.Close(), conn.Close())}
	}
	l.path.Takes()
	s.state.connections.Add(1)
	s.state.now.Store(&stateNow{state: StateConnected, peer: conn.Peer().String()})
	s.config.Log.Info("a channel is connected to its peer", "sender", s.config.Name, "device", l.path.device, "peer", conn.Peer().String(), "next", l.begin)
	back := s.comeBack(ctx)
	if err = s.watch(there, do, conn, back); stream.Left(there) {
		err = errMoved
	}
	s.stopComingBack(back)
	var cause error
	if derr := do(func() error { cause = s.detach(); return nil }); derr != nil {
		err = &fatalError{derr}
	}
	s.ended = time.Now()
	if !s.several() || cause != nil && !atFault(cause) {
		s.release()
	}
	if errors.Is(cause, errSlow) {
		_ = conn.Send([]byte(errSlow.Error())) // it may be gone
	}
	if cause != nil && !errors.As(err, new(*fatalError)) && !errors.Is(err, errMoved) {
		err = cause
	}
	if cerr := l.pair.Close(); cerr != nil {
		err = &fatalError{errors.Join(err, fmt.Errorf("close the queue pair: %w", cerr))}
	}
	_ = conn.Close() // it may be gone
	return err
}

// errMoved ends a connection because the peer is at another address now.
var errMoved = errors.New("the peer has moved to another address")

// locate finds where the peer is.
func (s *Sender) locate() error {
	if s.config.Place == nil {
		s.address = s.path.address
		return nil
	}
	all, changed, err := s.config.Place.Addresses()
	s.changed = changed
	if err != nil {
		return fmt.Errorf("find the peer: %w", err)
	}
	s.address = all[s.tries%len(all)]
	at := s.address
	s.state.at.Store(&at)
	return nil
}

// reach returns the next connection: one that was made already, or a new one.
func (s *Sender) reach(ctx context.Context) (*link, *connect.Conn, error) {
	if o := s.taken; o != nil {
		s.taken = nil
		s.dialBy(o.link.path)
		s.address = s.path.address
		return o.link, o.conn, nil
	}
	return s.dial(ctx, s.path)
}

// dial makes a queue pair and connects it over a path.
func (s *Sender) dial(ctx context.Context, p *path) (l *link, conn *connect.Conn, err error) {
	address := s.address
	if s.several() {
		address = p.address
	}
	settings, err := p.endpoint.SettingsTo(ctx, address)
	if err != nil {
		return nil, nil, err
	}
	with := s.config.Connect
	if s.several() {
		stream.PathTimes(&settings, &with)
	}
	if s.config.Place != nil { // who says where the peer is must not choose which certificate it needs
		with.ServerName = s.config.Place.Name()
	}
	pair, err := p.endpoint.Domain.NewQueuePair(rdma.QueuePairConfig{Transport: rdma.RC, SendCQ: p.done.Queue, ReceiveCQ: p.done.Queue,
		SendDepth: s.writes, RecvDepth: acks, SendSGEs: 1, RecvSGEs: 1})
	if err != nil {
		return nil, nil, err
	}
	l = &link{path: p, pair: pair, number: pair.QPN()}
	if conn, err = s.meet(ctx, l, address, settings, with); err != nil {
		return nil, nil, errors.Join(err, pair.Close())
	}
	return l, conn, nil
}

// meet posts the receives and connects.
func (s *Sender) meet(ctx context.Context, l *link, address string, settings connect.Settings, with connect.Config) (*connect.Conn, error) {
	local, err := connect.Prepare(l.path.endpoint.Device, l.pair, settings)
	if err != nil {
		return nil, err
	}
	requests, elements := make([]rdma.ReceiveRequest, acks), make([]rdma.SGE, acks)
	for i := range requests {
		requests[i], elements[i] = rdma.ReceiveRequest{ID: receiveID | uint64(i), SGEs: 1}, l.path.cells.SGE(i)
	}
	if _, err := l.pair.PostReceive(requests, elements); err != nil {
		return nil, fmt.Errorf("post receives: %w", err)
	}
	slots, slot := s.config.Outlet.Slots()
	l.numbering = s.ring.Numbering()
	last := s.ring.Last()
	first := s.oldest(last)
	hello := protocol.Hello{Role: protocol.RoleChannel, Flow: s.config.Flow, Message: slot, Window: slots, Session: l.numbering, Next: first, Size: last, Capabilities: protocol.CapabilityRead}
	text, err := hello.Append(nil)
	if err != nil {
		return nil, err
	}
	conn, err := connect.Dial(ctx, address, connect.End{Queue: l.pair, Settings: settings, Parameters: local, Hello: text}, with)
	if err != nil {
		return nil, err
	}
	if err := s.agree(conn.Remote(), l, address, first); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// agree checks the receiver's answer.
func (s *Sender) agree(remote *connect.Offer, l *link, address string, first uint64) error {
	h, err := protocol.ParseHello(remote.Hello)
	if err != nil {
		return err
	}
	slots, slot := s.config.Outlet.Slots()
	last := s.ring.Last() // later than the hello: another connection may have carried more meanwhile
	grant, err := remote.Grant(grantName)
	switch {
	case h.Role != protocol.RoleChannel:
		return fmt.Errorf("%s takes no channel: it serves as %v", address, h.Role)
	case err != nil:
		return err
	case h.Window != slots || h.Message != slot:
		return fmt.Errorf("the channel at %s has %d slots of %d bytes, and here %d of %d", address, h.Window, h.Message, slots, slot)
	case h.Session != l.numbering:
		return fmt.Errorf("%w: %s answers with another numbering", protocol.BadSession, address)
	case h.Next < first || h.Next > last+1:
		return fmt.Errorf("%w: %s wants message %d, and there are %d to %d", protocol.BadSequence, address, h.Next, first, last)
	case grant.Access&rdma.RemoteWrite == 0 || grant.Length != uint64(slots)*uint64(slot):
		return fmt.Errorf("%w: %s grants %d bytes with rights %v", protocol.NotGranted, address, grant.Length, grant.Access)
	}
	l.rkey, l.addr, l.begin, l.acked, l.final = grant.RKey, grant.Addr, h.Next, h.Next-1, h.Next-1
	if h.Capabilities&protocol.CapabilityRead != 0 && h.Size > 0 && h.Size <= h.Next {
		l.acked = h.Size - 1
	}
	return nil
}

// grantName is the name of a receiver's grant: the slots of its ring.
const grantName = "slots"

// watch waits for the end of a connection, and returns the receiver's reason.
func (s *Sender) watch(ctx context.Context, do stream.Doer, conn *connect.Conn, back *comeback) error {
	heard := make(chan error, 1)
	go func() { heard <- listen(conn) }()
	defer s.probeSilent(do)()
	select {
	case err := <-heard:
		return err
	case s.taken = <-back.offered():
		_ = conn.SetDeadline(time.Now())
		<-heard
		return errBetterPath
	case <-ctx.Done():
	case <-s.broken:
		_ = conn.SetDeadline(time.Now().Add(s.finalTime()))
		err := <-heard
		_ = conn.SetDeadline(time.Now().Add(finalTime)) // for a last word
		return err
	}
	_ = conn.SetDeadline(time.Now())
	<-heard
	return ctx.Err()
}

// finalTime is how long the other side has to tell why it ends a connection. With several paths it is short: a path that
// has failed brings no reason either.
func (s *Sender) finalTime() time.Duration {
	if s.several() {
		return finalTime / 4
	}
	return finalTime
}

// listen reads the other side's messages until it closes the connection.
func listen(conn *connect.Conn) error {
	said := ""
	for {
		text, err := conn.Receive()
		switch {
		case err == nil:
			said = fmt.Sprintf("%.200q", text)
			continue
		case said != "":
			return errors.New("the other side says: " + said)
		case errors.Is(err, io.EOF):
			return errLeft
		}
		return err
	}
}

var errLeft = errors.New("the other side closed the connection")
