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
	// lookTime is how often Run looks whether the channel has a writer.
	lookTime = 5 * time.Millisecond
	// finalTime is how long the other side has to tell why it ends a connection.
	finalTime = 200 * time.Millisecond
)

// fatalError ends Run.
type fatalError struct{ err error }

func (e *fatalError) Error() string { return e.err.Error() }
func (e *fatalError) Unwrap() error { return e.err }

// Run connects to the peer, and again whenever the connection ends, until ctx ends. The error says that the worker has
// ended. do runs functions on the worker's thread.
func (s *Sender) Run(ctx context.Context, do stream.Doer) error {
	wait := leastWait
	for ctx.Err() == nil {
		if !s.config.Outlet.Begun() {
			sleep(ctx, lookTime)
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
		s.tell(err)
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
	l, conn, err := s.dial(there)
	if stream.Left(there) && err != nil {
		return errMoved
	}
	if err != nil {
		return err
	}
	s.config.Reader.Begin(l.begin)
	if err := do(func() error { return s.attach(l) }); err != nil {
		s.config.Reader.End()
		return &fatalError{errors.Join(err, l.pair.Close(), conn.Close())}
	}
	s.state.connections.Add(1)
	s.state.now.Store(&stateNow{state: StateConnected, peer: conn.Peer().String()})
	s.config.Log.Info("a channel is connected to its peer", "sender", s.config.Name, "peer", conn.Peer().String(), "next", l.begin)
	if err = s.watch(there, conn); stream.Left(there) {
		err = errMoved
	}
	var cause error
	if derr := do(func() error { cause = s.detach(); return nil }); derr != nil {
		err = &fatalError{derr}
	}
	s.config.Reader.End()
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
		s.address = s.config.Address
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

// dial makes a queue pair and connects it.
func (s *Sender) dial(ctx context.Context) (l *link, conn *connect.Conn, err error) {
	e := s.config.Endpoint
	settings, err := e.SettingsTo(ctx, s.address)
	if err != nil {
		return nil, nil, err
	}
	pair, err := e.Domain.NewQueuePair(rdma.QueuePairConfig{Transport: rdma.RC, SendCQ: s.done.Queue, ReceiveCQ: s.done.Queue,
		SendDepth: s.writes, RecvDepth: acks, SendSGEs: 1, RecvSGEs: 1})
	if err != nil {
		return nil, nil, err
	}
	l = &link{pair: pair, number: pair.QPN()}
	if conn, err = s.meet(ctx, l, settings); err != nil {
		return nil, nil, errors.Join(err, pair.Close())
	}
	return l, conn, nil
}

// meet posts the receives and connects.
func (s *Sender) meet(ctx context.Context, l *link, settings connect.Settings) (*connect.Conn, error) {
	local, err := connect.Prepare(s.config.Endpoint.Device, l.pair, settings)
	if err != nil {
		return nil, err
	}
	requests, elements := make([]rdma.ReceiveRequest, acks), make([]rdma.SGE, acks)
	for i := range requests {
		requests[i], elements[i] = rdma.ReceiveRequest{ID: receiveID | uint64(i), SGEs: 1}, s.cells.SGE(i)
	}
	if _, err := l.pair.PostReceive(requests, elements); err != nil {
		return nil, fmt.Errorf("post receives: %w", err)
	}
	slots, slot := s.config.Outlet.Slots()
	l.numbering = s.ring.Numbering()
	last := s.ring.Last()
	first := s.ring.First(last)
	hello := protocol.Hello{Role: protocol.RoleChannel, Flow: s.config.Flow, Message: slot, Window: slots, Session: l.numbering, Next: first, Size: last}
	text, err := hello.Append(nil)
	if err != nil {
		return nil, err
	}
	with := s.config.Connect
	if s.config.Place != nil { // who says where the peer is must not choose which certificate it needs
		with.ServerName = s.config.Place.Name()
	}
	conn, err := connect.Dial(ctx, s.address, connect.End{Queue: l.pair, Settings: settings, Parameters: local, Hello: text}, with)
	if err != nil {
		return nil, err
	}
	if err := s.agree(conn.Remote(), l, first, last); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// agree checks the receiver's answer.
func (s *Sender) agree(remote *connect.Offer, l *link, first, last uint64) error {
	h, err := protocol.ParseHello(remote.Hello)
	if err != nil {
		return err
	}
	slots, slot := s.config.Outlet.Slots()
	grant, err := remote.Grant(grantName)
	switch {
	case h.Role != protocol.RoleChannel:
		return fmt.Errorf("%s takes no channel: it serves as %v", s.address, h.Role)
	case err != nil:
		return err
	case h.Window != slots || h.Message != slot:
		return fmt.Errorf("the channel at %s has %d slots of %d bytes, and here %d of %d", s.address, h.Window, h.Message, slots, slot)
	case h.Session != l.numbering:
		return fmt.Errorf("%w: %s answers with another numbering", protocol.BadSession, s.address)
	case h.Next < first || h.Next > last+1:
		return fmt.Errorf("%w: %s wants message %d, and there are %d to %d", protocol.BadSequence, s.address, h.Next, first, last)
	case grant.Access&rdma.RemoteWrite == 0 || grant.Length != uint64(slots)*uint64(slot):
		return fmt.Errorf("%w: %s grants %d bytes with rights %v", protocol.NotGranted, s.address, grant.Length, grant.Access)
	}
	l.rkey, l.addr, l.begin, l.acked, l.final = grant.RKey, grant.Addr, h.Next, h.Next-1, h.Next-1
	return nil
}

// grantName is the name of a receiver's grant: the slots of its ring.
const grantName = "slots"

// watch waits for the end of a connection, and returns the receiver's reason.
func (s *Sender) watch(ctx context.Context, conn *connect.Conn) error {
	heard := make(chan error, 1)
	go func() { heard <- listen(conn) }()
	select {
	case err := <-heard:
		return err
	case <-ctx.Done():
	case <-s.broken:
		_ = conn.SetDeadline(time.Now().Add(finalTime))
		err := <-heard
		_ = conn.SetDeadline(time.Now().Add(finalTime)) // for a last word
		return err
	}
	_ = conn.SetDeadline(time.Now())
	<-heard
	return ctx.Err()
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
