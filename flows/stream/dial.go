package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/printable"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// Run connects the sender, and reconnects until ctx ends. It waits from 100 ms to 5 s between
// attempts, longer with each failure; with several receivers from 2 to 100 ms, half of that more or
// less. Run uses the worker's thread, through do, only to attach and detach a connection. The error
// says that the worker has ended, or that a queue pair cannot be closed.
func (s *Sender) Run(ctx context.Context, do Doer) error {
	wait := backoff{group: s.to.group()}
	s.dialBy(s.paths[0])
	s.beginStandbys(ctx)
	defer s.stats.enter(SenderStopped, nil)
	defer func() { s.path.Leaves(nil) }()
	defer s.forgo()
	for ctx.Err() == nil {
		began, at := time.Now(), s.to.address()
		moved, err := s.connection(ctx, do)
		if fatal, ok := errors.AsType[*fatalError](err); ok {
			return fmt.Errorf("sender %s: %w", s.config.Name, fatal.err)
		}
		if ctx.Err() != nil {
			return nil
		}
		if moved || time.Since(began) > longest || s.to.places != nil && s.to.address() != at { // how long the other one was away does not matter
			wait = backoff{group: wait.group}
		}
		if errors.Is(err, errElsewhere) {
			s.to.goesOn(moved)
			s.stats.followed.Add(1)
			s.config.Log.Info("the receiver has moved: following it", "sender", s.config.Name)
			continue
		}
		if s.taken != nil {
			s.path.Leaves(nil)
			s.to.goesOn(moved)
			if from := s.taken.from; from != sameMember {
				s.config.Log.Debug("another member leads the group", "sender", s.config.Name, "address", s.to.addresses[from])
			}
			continue
		}
		s.tell(err)
		changed := s.to.changed // before another member is chosen
		if s.next(err, moved, time.Now()) {
			wait.sleep(ctx, changed)
		}
	}
	return nil
}

// fatalError ends Run.
type fatalError struct{ err error }

func (e *fatalError) Error() string { return e.err.Error() }

// onWorker calls f on the worker's thread.
func onWorker(do Doer, f func()) error {
	if err := do(func() error { f(); return nil }); err != nil {
		return &fatalError{err}
	}
	return nil
}

// tell records why there is no connection. The first cause since the last connection is logged as a
// warning, later ones at a lower level.
func (s *Sender) tell(cause error) {
	level := slog.LevelInfo
	switch s.stats.enter(SenderWaiting, cause) {
	case cause.Error():
		return
	case "":
		level = slog.LevelWarn
	}
	if s.to.group() && doesNotLead(cause) { // the line of the next connection says who does
		level = slog.LevelDebug
	}
	s.config.Log.Log(context.Background(), level, "no connection to the receiver: trying again", "sender", s.config.Name, "address", s.to.address(), protocol.LogReason(cause), "err", cause)
}

// connection makes one connection and returns when it ends. It reports whether the receiver
// acknowledged messages during the connection.
func (s *Sender) connection(ctx context.Context, do Doer) (moved bool, err error) {
	if err := s.locate(); err != nil {
		return false, err
	}
	s.stats.enter(SenderConnecting, nil)
	there, leave := s.stays(ctx)
	l, conn, hello, err := s.reach(there, do)
	leave()
	if err != nil {
		return false, elsewhere(there, err)
	}
	defer conn.Close()
	var refused error
	if err := onWorker(do, func() { refused = s.attach(l, hello) }); err != nil {
		return false, errors.Join(err, l.pair.Close())
	}
	if refused != nil {
		return false, errors.Join(refused, s.end(do, l))
	}
	before := s.stats.acknowledged.Load()
	s.stats.connected(conn.Peer(), &hello)
	s.stats.single.Store(s.whySingle(l))
	s.path.Takes()
	s.config.Log.Info("connected to receiver", "sender", s.config.Name, "address", s.to.address(), "peer", conn.Peer().String(), "flow", hello.Flow, "next", hello.Next, "method", methodOf(&hello))
	if l.several {
		err = s.carry(ctx, do, l, conn)
		return s.stats.acknowledged.Load() > before, err
	}
	s.keepStandbys(ctx)
	there, leave = s.stays(ctx)
	silent, stop := s.silence(there)
	back := s.comeBack(there, do)
	err = s.watch(there, do, l, conn, s.broken, silent, back)
	s.stopComingBack(back)
	stop()
	leave()
	var cause error
	if err := onWorker(do, func() { cause = s.detach() }); err != nil {
		return false, errors.Join(err, l.pair.Close())
	}
	return s.stats.acknowledged.Load() > before, errors.Join(elsewhere(there, primaryCause(err, cause)), s.end(do, l))
}

// primaryCause chooses the cause to report for the end of a connection: the reason that the
// receiver gave over TCP, or else the first error over RDMA.
func primaryCause(heard, cause error) error {
	if _, ok := errors.AsType[*saidError](heard); ok || cause == nil {
		return heard
	}
	return cause
}

// end closes a link that the worker has detached.
func (s *Sender) end(do Doer, l *link) error {
	if err := l.pair.Close(); err != nil {
		return &fatalError{fmt.Errorf("close the queue pair: %w", err)}
	}
	return onWorker(do, s.released)
}

// dial makes a queue pair and connects it. from is the lowest sequence that can still be sent.
func (s *Sender) dial(ctx context.Context, from uint64) (l *link, conn *connect.Conn, h protocol.Hello, err error) {
	settings, err := s.settings(ctx)
	if err != nil {
		return nil, nil, h, err
	}
	pair, err := s.newPair()
	if err != nil {
		return nil, nil, h, err
	}
	if conn, err = s.meet(ctx, pair, settings, from); err == nil {
		if h, err = s.agree(conn); err != nil {
			err = errors.Join(err, conn.Close())
		}
	}
	if err != nil {
		return nil, nil, h, errors.Join(err, pair.Close())
	}
	return s.newLink(pair, &h), conn, h, nil
}

// newPair makes a queue pair.
func (s *Sender) newPair() (rdma.QueuePair, error) {
	return s.path.endpoint.Domain.NewQueuePair(rdma.QueuePairConfig{Transport: rdma.RC, SendCQ: s.path.queue, ReceiveCQ: s.path.queue,
		SendDepth: s.limits.send, RecvDepth: s.limits.receive, SendSGEs: s.config.Frames + 1, RecvSGEs: 1})
}

// newLink describes a queue pair that is connected, by the receiver's hello.
func (s *Sender) newLink(pair rdma.QueuePair, h *protocol.Hello) *link {
	l := &link{pair: pair, path: s.path, number: pair.QPN(), origins: h.Capabilities&protocol.CapabilityOrigin != 0}
	l.probes = s.several() && h.Capabilities&protocol.CapabilityProbe != 0 && s.path.endpoint.Device.Capabilities().MaxReads > 0
	switch {
	case h.Capabilities&protocol.CapabilityWrite != 0:
		l.credits = newCredits(h)
	case s.config.Active && h.Capabilities&protocol.CapabilityPaths != 0:
		l.several, l.receiver = true, h.Path()
		l.head, l.tail = 1, 1
		l.numbers, l.broken = make([]uint64, powerOfTwo(s.limits.send)), make(chan struct{}, 1)
	}
	return l
}

// meet posts the receives and connects.
func (s *Sender) meet(ctx context.Context, pair rdma.QueuePair, settings connect.Settings, from uint64) (*connect.Conn, error) {
	local, err := connect.Prepare(s.path.endpoint.Device, pair, settings)
	if err != nil {
		return nil, err
	}
	if err := s.postReceives(pair); err != nil {
		return nil, err
	}
	return s.introduce(ctx, connect.End{Queue: pair, Settings: settings, Parameters: local}, from, s.pathCapability())
}

// postReceives posts all receives to a new queue pair. The worker has no other one.
func (s *Sender) postReceives(pair rdma.QueuePair) error {
	requests, landings := make([]rdma.ReceiveRequest, s.limits.receive), make([]rdma.SGE, s.limits.receive)
	for i := range requests {
		id := receiveID | uint64(i)
		requests[i], landings[i] = rdma.ReceiveRequest{ID: id, SGEs: 1}, s.landingFor(s.path, id)
	}
	if _, err := pair.PostReceive(requests, landings); err != nil {
		return fmt.Errorf("post receives: %w", err)
	}
	return nil
}

// introduce dials the receiver and says hello.
func (s *Sender) introduce(ctx context.Context, e connect.End, from, capabilities uint64) (_ *connect.Conn, err error) {
	c := &s.config
	hello := protocol.Hello{Role: protocol.RoleAppend, Flow: c.Flow, Message: c.Message, Session: s.session, Next: from, Participant: c.Participant, Capabilities: capabilities}
	if c.Method != BySend {
		hello.Capabilities |= protocol.CapabilityWrite
	}
	if e.Hello, err = hello.Append(nil); err != nil {
		return nil, err
	}
	with := c.Connect
	switch {
	case s.to.group():
		with.Timeout = cmp.Or(with.Timeout, s.to.timeout)
	case s.several():
		with.Timeout = pathHandshake
	}
	if s.several() {
		with.Silence = pathSilence
	}
	if s.to.places != nil { // who says where the receiver is must not choose which certificate it needs
		with.ServerName = s.to.places[s.to.at].Name()
	}
	return connect.Dial(ctx, s.to.address(), e, with)
}

// agree reads the receiver's hello.
func (s *Sender) agree(conn *connect.Conn) (protocol.Hello, error) {
	h, err := protocol.ParseHello(conn.Remote().Hello)
	if err == nil {
		err = s.accepts(&h)
	}
	return h, err
}

// accepts checks the receiver's hello.
func (s *Sender) accepts(h *protocol.Hello) error {
	switch c, writes := &s.config, h.Capabilities&protocol.CapabilityWrite != 0; {
	case h.Role != protocol.RoleAppend:
		return fmt.Errorf("%s is no receiver of messages: it serves as %v", s.to.address(), h.Role)
	case c.Flow != "" && h.Flow != c.Flow:
		return fmt.Errorf("%s serves flow %q and not %q", s.to.address(), h.Flow, c.Flow)
	case h.Session != s.session:
		return protocolError(protocol.BadSession)
	case h.Next == 0:
		return protocolError(protocol.BadSequence)
	case h.Message < c.Message:
		return fmt.Errorf("%s takes messages of %d bytes at most, and here they may have %d: make them longer there, or shorter here", s.to.address(), h.Message, c.Message)
	case h.Durability < c.Durability:
		return fmt.Errorf("%s promises that messages are %v when it acknowledges them, and here they must be %v: say acknowledge: %[3]v there, or durability: %[2]v here", s.to.address(), h.Durability, c.Durability)
	case c.Method == ByWrite && !writes:
		return fmt.Errorf("%s takes messages by SEND and grants no memory to write them into: say method: write there, or send here", s.to.address())
	case c.Method == BySend && writes:
		return fmt.Errorf("%s takes messages by WRITE with immediate alone: say method: send there, or write here", s.to.address())
	}
	return nil
}

// settings returns the settings for the receiver's address.
func (s *Sender) settings(ctx context.Context) (connect.Settings, error) {
	if s.config.Settings != nil {
		return *s.config.Settings, nil
	}
	settings, err := s.path.endpoint.SettingsTo(ctx, s.to.address())
	if s.several() {
		settings.Timeout, settings.Retries = pathTimeout, pathRetries
	}
	return settings, err
}

// maxFinalMessages is the time that the receiver may take to send its reason for the end.
const maxFinalMessages = 200 * time.Millisecond

// finalMessages returns that time. With several paths it is short: a path that has failed brings no reason either.
func (s *Sender) finalMessages() time.Duration {
	if s.several() {
		return maxFinalMessages / 4
	}
	return maxFinalMessages
}

var errSilent = errors.New("the member acknowledges nothing")

// silence returns a channel that is closed when messages have waited for the target's timeout and none was
// acknowledged: a process that hangs keeps its connections. Once one was acknowledged, leastTimeout counts. It never
// is without other receivers. The caller calls stop.
func (s *Sender) silence(ctx context.Context) (silent <-chan struct{}, stop func()) {
	if !s.to.group() {
		return nil, func() {}
	}
	ctx, stop = context.WithCancel(ctx)
	over, limit := make(chan struct{}), s.to.timeout
	go func() {
		tick := time.NewTicker(limit / 20)
		defer tick.Stop()
		last, since := s.stats.acknowledged.Load(), time.Now()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				if at := s.stats.acknowledged.Load(); at != last || s.stats.waiting.Load()+s.stats.flight.Load() == 0 {
					if at != last { // the group is not slow
						limit = leastTimeout
					}
					last, since = at, now
				} else if now.Sub(since) > limit {
					close(over)
					return
				}
			}
		}
	}()
	return over, stop
}

// watch waits for the end of a connection, and returns the receiver's reason.
func (s *Sender) watch(ctx context.Context, do Doer, l *link, conn *connect.Conn, broken, silent <-chan struct{}, back *comeback) error {
	heard := make(chan error, 1)
	go func() { heard <- listen(conn) }()
	defer s.probeSilent(do, l)()
	select {
	case err := <-heard:
		return err
	case <-silent:
		_ = conn.SetDeadline(time.Now())
		<-heard
		return errSilent
	case o := <-back.offered():
		s.taken = &o
		_ = conn.SetDeadline(time.Now())
		<-heard
		return errBetterPath
	case o := <-s.standby.another():
		s.taken = &o
		_ = conn.SetDeadline(time.Now())
		<-heard
		return errMoved
	case <-ctx.Done():
	case <-broken:
		_ = conn.SetDeadline(time.Now().Add(s.finalMessages()))
		return <-heard
	}
	_ = conn.SetDeadline(time.Now())
	<-heard
	return ctx.Err()
}

// saidError is the reason that a receiver gives for ending the connection.
type saidError struct{ text string }

func (e *saidError) Error() string { return "the receiver says: " + e.text }

// listen reads the receiver's messages until it closes the connection.
func listen(conn *connect.Conn) error {
	said := ""
	for {
		text, err := conn.Receive()
		switch {
		case err != nil && said != "":
			return &saidError{said}
		case err == io.EOF:
			return errors.New("the receiver closed the connection")
		case err != nil:
			return err
		}
		said = printable.Only(string(text), mostWords)
	}
}

// backoff is the wait between attempts.
type backoff struct {
	next  time.Duration
	group bool // there are several receivers
}

const (
	shortest = 100 * time.Millisecond
	longest  = 5 * time.Second
	// shortestInGroup and longestInGroup are the waits with several receivers: another one takes over soon.
	shortestInGroup = 2 * time.Millisecond
	longestInGroup  = 100 * time.Millisecond
)

// wait returns the next wait, with jitter of one half in both directions, so that senders that lost
// the same receiver do not reconnect at the same time.
func (b *backoff) wait() time.Duration {
	least, most := shortest, longest
	if b.group {
		least, most = shortestInGroup, longestInGroup
	}
	d := max(b.next, least)
	b.next = min(2*d, most)
	return d/2 + rand.N(d)
}

// sleep waits until the next attempt: at once when the receiver may be elsewhere.
func (b *backoff) sleep(ctx context.Context, changed <-chan struct{}) {
	t := time.NewTimer(b.wait())
	defer t.Stop()
	select {
	case <-t.C:
	case <-changed:
	case <-ctx.Done():
	}
}

// mostWords is the maximum length of that text in bytes.
const mostWords = 200
