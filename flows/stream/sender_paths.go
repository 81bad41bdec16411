package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// Path is a way to a receiver: a device here, and an address there.
type Path struct {
	Device   string // its name in SenderStats
	Endpoint *Endpoint
	Address  string   // host and TCP port
	Others   []string // those of the other members of a group, in the order of SenderConfig.Others
}

// senderPath is a way to the receiver, or to one member of a group.
type senderPath struct {
	device   string
	endpoint *Endpoint
	address  string
	member   int                  // of the group
	queue    rdma.CompletionQueue // of all queue pairs over the device; the paths to other members have the same one
	event    *arming              // of queue
	lkey     uint32
	base     uint64 // the registration's address of the region's byte 0
	number   uint32 // in the list of paths
	area     int    // of its receives

	// The worker's:
	link     *link              // one of several; nil: none
	requests []rdma.SendRequest // of the next batch of that link
	elements []rdma.SGE         // of these requests
	posted   uint64

	PathRecord // of Run, and while a connection lasts of its comeback

	shown counter.Counter // messages posted
}

// listPaths returns the paths: those to the first member, the preferred one first, then those to the second one, and so
// on. Without several paths there is one for all members.
func (c *SenderConfig) listPaths() (all []*senderPath) {
	paths := append([]Path{{c.Device, c.Endpoint, c.Address, c.Others}}, c.Paths...)
	members := 1
	if len(paths) > 1 {
		members += len(c.Others)
	}
	for member := range members {
		for number, p := range paths {
			one := &senderPath{device: p.Device, endpoint: p.Endpoint, address: p.Address, member: member, number: uint32(number)}
			if member > 0 {
				one.address = p.Others[member-1]
			}
			all = append(all, one)
		}
	}
	return all
}

// preparePaths makes the list of paths.
func (s *Sender) preparePaths() {
	c := &s.config
	s.paths = c.listPaths()
	for i, p := range s.paths {
		p.lkey, p.base = p.endpoint.Memory.LKey(), p.endpoint.Memory.Addr()
		if c.Active {
			p.area = i
			p.requests, p.elements = make([]rdma.SendRequest, sendBatch), make([]rdma.SGE, 0, sendBatch*(c.Frames+1))
		}
	}
	s.on, s.path = s.paths[0], s.paths[0]
}

// openPaths makes the completion queues: one for each device, as there is a connection over one of them at a time.
func (s *Sender) openPaths() (err error) {
	for _, p := range s.paths {
		if p.member > 0 {
			p.queue, p.event = s.paths[p.number].queue, s.paths[p.number].event
			continue
		}
		p.event = &arming{}
		if p.queue, err = p.endpoint.Device.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: s.limits.send + s.limits.receive, Events: s.config.Events}); err != nil {
			return err
		}
	}
	return nil
}

func (p *senderPath) close() error {
	if p.member > 0 {
		p.queue = nil
	}
	if p.queue == nil {
		return nil
	}
	if err := p.queue.Close(); err != nil {
		return err
	}
	p.queue = nil
	return nil
}

// several reports whether there is more than one path.
func (s *Sender) several() bool { return len(s.config.Paths) > 0 }

// use makes the worker use the device of a path: the queued messages are in its registration from now on.
func (s *Sender) use(p *senderPath) {
	if p == s.on {
		return
	}
	for i := range s.pieces {
		s.pieces[i].Addr += p.base - s.on.base
		s.pieces[i].LKey = p.lkey
	}
	s.on = p
}

// dialBy makes Run use a path for the next connection.
func (s *Sender) dialBy(p *senderPath) {
	s.path = p
	if s.several() {
		s.to.over(p)
		s.stats.address.Store(&p.address)
	}
}

// over says by which path a member is dialed.
func (t *target) over(p *senderPath) { t.at, t.addresses[p.member] = p.member, p.address }

// pathsTo returns the paths to a member, if there are several: the preferred one first.
func (s *Sender) pathsTo(member int) []*senderPath {
	n := 1 + len(s.config.Paths)
	return s.paths[member*n : (member+1)*n]
}

// rested returns the path over which a member is dialed next, and whether it has rested: the first one that has, or else
// the one that will be the first.
func (s *Sender) rested(member int, now time.Time) (next *senderPath, rested bool) {
	all := s.pathsTo(member)
	next = all[0]
	for _, p := range all {
		if !p.rest.After(now) {
			return p, true
		}
		if p.rest.Before(next.rest) {
			next = p
		}
	}
	return next, false
}

// next chooses what is dialed after a connection, or an attempt, has ended. It reports whether Run must wait before.
func (s *Sender) next(cause error, moved bool, now time.Time) (wait bool) {
	if !s.several() {
		return !s.to.failed(cause, moved, now)
	}
	if s.to.group() {
		return s.nextInGroup(cause, moved, now)
	}
	if !errors.Is(cause, errAllFailed) { // else each has recorded it
		s.path.Leaves(cause)
	}
	p, rested := s.rested(0, now)
	s.dialBy(p)
	return !rested
}

// nextInGroup is next for a group with several paths. A path fails to one member, and may lead to another: the other paths
// to the same member come first, because it may still lead. A member that says that it does not lead has been reached.
func (s *Sender) nextInGroup(cause error, moved bool, now time.Time) (wait bool) {
	over, reached := s.path.number, doesNotLead(cause) || errors.Is(cause, errOther)
	if reached {
		s.path.Leaves(nil)
	} else {
		s.path.Leaves(cause)
		if p, rested := s.rested(s.to.at, now); rested {
			s.to.goesOn(moved)
			s.to.slower()
			s.dialBy(p)
			s.again = true
			return false
		}
	}
	wait = !s.to.failed(cause, moved, now)
	p, _ := s.rested(s.to.at, now)
	if same := s.pathsTo(s.to.at)[over]; reached && !same.rest.After(now) { // this side of it works
		p = same
	}
	s.dialBy(p)
	return wait
}

// probeSilent probes the receiver over a link while it is silent, until stop is called.
func (s *Sender) probeSilent(do Doer, l *link) (stop func()) {
	if !l.probes {
		return func() {}
	}
	return Looks(do, func() bool { return s.stats.waiting.Load()+s.stats.flight.Load() > 0 }, func() { s.look(l) })
}

// look posts a probe over a link if one is due.
func (s *Sender) look(l *link) {
	if l.cause != nil || !l.probe.Due(s.unacknowledged() > 0) {
		return
	}
	last, room := s.sent, s.sent-s.done < uint64(s.limits.send)
	if l.several {
		last, room = l.tail-1, l.pending() < uint64(s.limits.send)
	}
	if !room { // the device has messages that it repeats itself
		return
	}
	err := l.probe.Post(l.pair, rdma.Read, last)
	switch {
	case err == nil:
		l.path.Probed()
	case l.several:
		s.failLink(l, fmt.Errorf("post a probe: %w", err))
	default:
		s.fail(fmt.Errorf("post a probe: %w", err))
	}
}

// errBetterPath ends a connection because a path that is preferred is well again.
var errBetterPath = errors.New("a path that is preferred is well again")

// comeback tries the paths that are preferred to that of the connection.
type comeback struct {
	s       *Sender
	better  []*senderPath
	session uint64
	offers  chan offer
	stop    chan struct{} // closed when the connection has ended
	done    chan struct{} // closed when no goroutine runs any more
	late    *offer        // made when the connection had ended already
}

// comeBack begins to try the paths that are preferred to the present one; nil: there is none. ctx is that of Run.
func (s *Sender) comeBack(ctx context.Context, do Doer) *comeback {
	if s.path.number == 0 {
		return nil
	}
	b := &comeback{s: s, session: s.session, offers: make(chan offer), stop: make(chan struct{}), done: make(chan struct{}),
		better: s.pathsTo(s.path.member)[:s.path.number]}
	s.spawn(func() {
		defer close(b.done)
		b.run(ctx, do)
	})
	return b
}

// offered returns the channel of the connection over a better path; nil: none ever comes. b may be nil.
func (b *comeback) offered() <-chan offer {
	if b == nil {
		return nil
	}
	return b.offers
}

// stopComingBack ends the attempts. An attempt that has begun is completed, because the receiver may have given up the
// session's old connection for it already.
func (s *Sender) stopComingBack(b *comeback) {
	if b == nil {
		return
	}
	close(b.stop)
	<-b.done
	switch {
	case b.late == nil:
	case s.taken != nil: // another member leads
		_ = b.late.close() // nothing was sent over it
	default:
		s.taken = b.late
	}
}

func (b *comeback) run(ctx context.Context, do Doer) {
	for {
		p := b.next()
		t := time.NewTimer(time.Until(p.rest))
		select {
		case <-t.C:
		case <-b.stop:
		case <-ctx.Done():
		}
		t.Stop()
		select {
		case <-b.stop:
			return
		case <-ctx.Done():
			return
		default:
		}
		o, err := b.dial(ctx, do, p)
		if err != nil {
			p.Leaves(err)
			continue
		}
		select {
		case b.offers <- o:
		case <-b.stop:
			b.late = &o
		}
		return
	}
}

// next returns the path that is tried next.
func (b *comeback) next() *senderPath {
	next := b.better[0]
	for _, p := range b.better {
		if p.rest.Before(next.rest) {
			next = p
		}
	}
	return next
}

// dial connects over a path. The receiver ends the session's old connection then. Its receives are posted later: their
// memory is that of the old connection's.
func (b *comeback) dial(ctx context.Context, do Doer, p *senderPath) (o offer, err error) {
	s := b.s
	var from uint64
	if err := onWorker(do, func() { from = s.confirm - s.begun + 1 }); err != nil {
		return o, err
	}
	a := s.dialer(p, b.session)
	settings, err := a.settings(ctx)
	if err != nil {
		return o, err
	}
	pair, err := a.newPair()
	if err != nil {
		return o, err
	}
	if o, err = a.meetLater(ctx, pair, settings, from); err != nil {
		return o, errors.Join(err, pair.Close())
	}
	return o, nil
}

// dialer returns what makes a connection of a session over a path, beside the one that Run makes.
func (s *Sender) dialer(p *senderPath, session uint64) *Sender {
	a := &Sender{config: s.config, region: s.region, own: s.own, to: newTarget(&s.config), session: session, paths: s.paths, path: p, limits: s.limits}
	if s.several() {
		a.to.over(p)
	}
	return a
}

// meetLater connects a queue pair without receives.
func (s *Sender) meetLater(ctx context.Context, pair rdma.QueuePair, settings connect.Settings, from uint64) (o offer, err error) {
	local, err := connect.Prepare(s.path.endpoint.Device, pair, settings)
	if err != nil {
		return o, err
	}
	conn, err := s.introduce(ctx, connect.End{Queue: pair, Settings: settings, Parameters: local}, from, 0)
	if err != nil {
		return o, err
	}
	h, err := s.agree(conn)
	if err != nil {
		return o, errors.Join(err, conn.Close())
	}
	return offer{link: s.newLink(pair, &h), conn: conn, hello: h, from: sameMember}, nil
}

// pathStats returns the statistics of the paths, if there are several.
func (s *Sender) pathStats() (all []PathStats) {
	if !s.several() {
		return nil
	}
	for _, p := range s.paths {
		one := p.Stats()
		one.Device, one.Address, one.Messages = p.device, p.address, p.shown.Load()
		all = append(all, one)
	}
	return all
}
