package stream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/printable"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// standbys are the connections of a sender to the members of a group that do not lead, or are not known to. Each has done everything that
// a connection needs but the answer which sequence is expected next. The member gives it when it begins to lead. So
// the sender learns at once who leads, and goes on without another handshake.
type standbys struct {
	s       *Sender
	session uint64
	offers  chan offer // of members that lead now
	ctx     context.Context
	cancel  context.CancelFunc
	all     sync.WaitGroup

	failing atomic.Int64 // members whose last attempt has failed

	mu      sync.Mutex
	present int           // the member that the sender is connected to, or dials; -1: none
	changed chan struct{} // closed when present changes
	drop    []func()      // by member: ends its standby connection; nil: there is none
}

// offer is a connection whose member leads now. Whoever receives it closes it.
type offer struct {
	link  *link
	conn  *connect.Conn
	hello protocol.Hello
	from  int // its member, or sameMember
}

// sameMember is the member of a connection to the same one, over a path that is preferred.
const sameMember = -1

// close ends an offer that is not taken.
func (o *offer) close() error { return errors.Join(o.conn.Close(), o.link.pair.Close()) }

// standBy begins to keep connections to all members but the one that the sender is connected to; -1: it is not.
func (s *Sender) standBy(ctx context.Context, present int) *standbys {
	b := &standbys{s: s, session: s.session, offers: make(chan offer), present: present, changed: make(chan struct{}), drop: make([]func(), len(s.to.addresses))}
	b.ctx, b.cancel = context.WithCancel(ctx)
	for i := range s.to.addresses {
		b.all.Add(1)
		s.spawn(func() {
			defer b.all.Done()
			b.keep(i)
		})
	}
	return b
}

// end closes all connections. b may be nil.
func (b *standbys) end() {
	if b != nil {
		b.cancel()
		b.all.Wait()
	}
}

// use says which member the sender dials or is connected to; -1: none. Its standby connection ends: a session has one
// connection to a member. b may be nil.
func (b *standbys) use(member int) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.present != member {
		b.present = member
		close(b.changed)
		b.changed = make(chan struct{})
	}
	if member >= 0 && b.drop[member] != nil {
		b.drop[member]()
	}
}

// wanted waits until a member needs a standby connection. The context ends when it does not any more.
func (b *standbys) wanted(member int) (ctx context.Context, cancel context.CancelFunc) {
	for {
		b.mu.Lock()
		changed := b.changed
		if b.present != member {
			ctx, cancel := context.WithCancel(b.ctx)
			b.drop[member] = cancel
			b.mu.Unlock()
			return ctx, func() {
				cancel()
				b.mu.Lock()
				b.drop[member] = nil
				b.mu.Unlock()
			}
		}
		b.mu.Unlock()
		select {
		case <-changed:
		case <-b.ctx.Done():
			return b.ctx, func() {}
		}
	}
}

// Waits between two attempts to reach a member that is away.
const leastStandbyPause, mostStandbyPause = 20 * time.Millisecond, 250 * time.Millisecond

// keep keeps a connection to a member.
func (b *standbys) keep(member int) {
	path := 0 // the next one, if there are several
	for pause := leastStandbyPause; b.ctx.Err() == nil; {
		ctx, cancel := b.wanted(member)
		began := time.Now()
		o, err := b.await(ctx, member, path)
		if ctx.Err() == nil { // else it is not wanted any more
			path++
		}
		cancel()
		if err == nil {
			select {
			case b.offers <- o:
				b.use(member)
				pause, path = leastStandbyPause, 0
				continue
			case <-b.ctx.Done():
				_ = o.close() // the sender ends
				return
			}
		}
		if time.Since(began) > time.Second {
			pause, path = leastStandbyPause, 0
		}
		b.failing.Add(1)
		select {
		case <-time.After(pause):
		case <-b.ctx.Done():
		}
		b.failing.Add(-1)
		pause = min(2*pause, mostStandbyPause)
	}
}

// await connects to a member, over one of its paths in turn, and waits until it leads.
func (b *standbys) await(ctx context.Context, member, path int) (o offer, err error) {
	by := b.s.paths[0]
	if b.s.several() {
		all := b.s.pathsTo(member)
		by = all[path%len(all)]
	}
	a := b.s.dialer(by, b.session)
	a.to.at = member
	if err := a.to.locate(); err != nil {
		return o, err
	}
	settings, err := a.settings(ctx)
	if err != nil {
		return o, err
	}
	pair, err := a.newPair()
	if err != nil {
		return o, err
	}
	o, err = a.standOn(ctx, pair, settings, &b.s.stats.standing)
	if err != nil {
		return o, errors.Join(err, pair.Close())
	}
	o.from = member
	return o, nil
}

// standOn waits over a queue pair until the member leads.
func (s *Sender) standOn(ctx context.Context, pair rdma.QueuePair, settings connect.Settings, standing *atomic.Int64) (o offer, err error) {
	local, err := connect.Prepare(s.path.endpoint.Device, pair, settings)
	if err != nil {
		return o, err
	}
	conn, err := s.introduce(ctx, connect.End{Queue: pair, Settings: settings, Parameters: local}, 1, protocol.CapabilityStandby)
	if err != nil {
		return o, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	h, err := s.agree(conn)
	if err == nil && h.Capabilities&protocol.CapabilityStandby != 0 { // else it leads already
		standing.Add(1)
		h, err = s.untilOpen(conn)
		standing.Add(-1)
	}
	if err == nil && !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		return o, errors.Join(err, conn.Close())
	}
	return offer{link: s.newLink(pair, &h), conn: conn, hello: h}, nil
}

// untilOpen waits for the hello of a member that leads.
func (s *Sender) untilOpen(conn *connect.Conn) (h protocol.Hello, err error) {
	text, err := conn.Receive()
	if err != nil {
		return h, err
	}
	if h, err = protocol.ParseHello(text); err != nil {
		return h, fmt.Errorf("the member says %q: %w", printable.Only(string(text), mostWords), err)
	}
	return h, s.accepts(&h)
}

// offerTime is how long a sender without a connection waits for a member with a standby connection to lead, before it
// dials again: an election may take as long.
const offerTime = time.Second

// another returns the channel of offers; nil: none ever comes. b may be nil.
func (b *standbys) another() <-chan offer {
	if b == nil {
		return nil
	}
	return b.offers
}

// errMoved ends a connection because another member leads.
var errMoved = errors.New("another member leads")

// beginStandbys asks all members of a group at once which one leads. So nobody asks them one after the other.
func (s *Sender) beginStandbys(ctx context.Context) {
	if s.to.group() && s.config.Participant == 0 {
		s.standby = s.standBy(ctx, -1)
	}
}

// keepStandbys says that the sender is connected to a member, and makes the standby connections anew when it has a new
// session.
func (s *Sender) keepStandbys(ctx context.Context) {
	switch {
	case s.standby == nil:
	case s.standby.session != s.session:
		s.standby.end()
		s.standby = s.standBy(ctx, s.to.at)
	default:
		s.standby.use(s.to.at)
	}
}

// awaitOffer waits until a member that leads has offered its connection. It gives up after offerTime, or as soon as no
// member can be reached: a dial says why.
func (s *Sender) awaitOffer(ctx context.Context) {
	b := s.standby
	b.use(-1) // the member that led may lead again
	late, tick := time.NewTimer(offerTime), time.NewTicker(leastStandbyPause/2)
	defer late.Stop()
	defer tick.Stop()
	for {
		select {
		case o := <-b.another():
			s.taken = &o
			return
		case <-tick.C:
			if b.failing.Load() == int64(len(b.drop)) {
				return
			}
		case <-late.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// forgo ends all standby connections, and the one that is not used yet.
func (s *Sender) forgo() {
	s.standby.end()
	if s.taken != nil {
		_ = s.taken.close() // nothing was sent over it
		s.taken = nil
	}
}

// reach returns a connection: one that a member has offered, or a new one. Of a group it dials a member only when none
// leads soon, or can be reached, or to try another path to a member that may lead.
func (s *Sender) reach(ctx context.Context, do Doer) (l *link, conn *connect.Conn, h protocol.Hello, err error) {
	again := s.again
	if s.again = false; s.taken == nil && !again && s.standby != nil {
		s.awaitOffer(ctx)
	}
	if s.taken != nil {
		return s.accept(s.taken)
	}
	var from uint64
	if err := onWorker(do, func() { from = s.confirm - s.begun + 1 }); err != nil {
		return nil, nil, h, err
	}
	s.standby.use(s.to.at)
	dialing, cancel := context.WithCancel(ctx)
	defer cancel()
	offered := make(chan *offer, 1)
	go func() {
		select {
		case o := <-s.standby.another():
			cancel()
			offered <- &o
		case <-dialing.Done():
			offered <- nil
		}
	}()
	l, conn, h, err = s.dial(dialing, from)
	cancel()
	switch o := <-offered; {
	case o == nil:
		return l, conn, h, err
	case err == nil: // the newer one
		return l, conn, h, o.close()
	default:
		return s.accept(o)
	}
}

// accept uses a connection that a member has offered. The worker has no other one.
func (s *Sender) accept(o *offer) (l *link, conn *connect.Conn, h protocol.Hello, err error) {
	s.taken = nil
	if o.from != sameMember {
		s.to.at = o.from
		s.stats.moves.Add(1)
	}
	s.dialBy(o.link.path)
	if err := s.postReceives(o.link.pair); err != nil {
		return nil, nil, h, errors.Join(err, o.close())
	}
	return o.link, o.conn, o.hello, nil
}
