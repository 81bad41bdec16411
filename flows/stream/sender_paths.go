package stream

import (
	"context"
	"errors"
	"time"

	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// Path is a way to a receiver: a device here, and an address there.
type Path struct {
	Device   string // its name in SenderStats
	Endpoint *Endpoint
	Address  string // host and TCP port
}

// senderPath is a way to the receiver.
type senderPath struct {
	device   string
	endpoint *Endpoint
	address  string
	queue    rdma.CompletionQueue // of all queue pairs of the path
	lkey     uint32
	base     uint64 // the registration's address of the region's byte 0
	number   uint32 // in the list of paths
	area     int    // of its receives

	// The worker's:
	link     *link              // one of several; nil: none
	requests []rdma.SendRequest // of the next batch of that link
	elements []rdma.SGE         // of these requests
	event    arming
	posted   uint64

	PathRecord // of Run, and while a connection lasts of its comeback

	shown counter.Counter // messages posted
}

// preparePaths makes the list of paths.
func (s *Sender) preparePaths() {
	c := &s.config
	for _, p := range append([]Path{{c.Device, c.Endpoint, c.Address}}, c.Paths...) {
		one := &senderPath{device: p.Device, endpoint: p.Endpoint, address: p.Address, lkey: p.Endpoint.Memory.LKey(), base: p.Endpoint.Memory.Addr()}
		if one.number = uint32(len(s.paths)); c.Active {
			one.area = len(s.paths)
			one.requests, one.elements = make([]rdma.SendRequest, sendBatch), make([]rdma.SGE, 0, sendBatch*(c.Frames+1))
		}
		s.paths = append(s.paths, one)
	}
	s.on, s.path = s.paths[0], s.paths[0]
}

// openPaths makes the completion queues.
func (s *Sender) openPaths() (err error) {
	for _, p := range s.paths {
		if p.queue, err = p.endpoint.Device.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: s.limits.send + s.limits.receive, Events: s.config.Events}); err != nil {
			return err
		}
	}
	return nil
}

func (p *senderPath) close() error {
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
		s.to.addresses[0] = p.address
		s.stats.address.Store(&p.address)
	}
}

// left records that the path is not used any more, and chooses the next one. It reports whether Run must wait: no path
// has rested. cause is why the path failed; nil: a better one offers a connection.
func (s *Sender) left(cause error) (wait bool) {
	if !errors.Is(cause, errAllFailed) { // else each has recorded it
		s.path.Leaves(cause)
	}
	if cause == nil {
		return false
	}
	now, next := time.Now(), s.paths[0]
	for _, p := range s.paths {
		if !p.rest.After(now) {
			s.dialBy(p)
			return false
		}
		if p.rest.Before(next.rest) {
			next = p
		}
	}
	s.dialBy(next)
	return true
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
	if s.path == s.paths[0] {
		return nil
	}
	b := &comeback{s: s, session: s.session, offers: make(chan offer), stop: make(chan struct{}), done: make(chan struct{})}
	for _, p := range s.paths {
		if p == s.path {
			break
		}
		b.better = append(b.better, p)
	}
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
	if b.late != nil {
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
	a.to.addresses[0] = p.address
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
	return offer{link: s.newLink(pair, &h), conn: conn, hello: h}, nil
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
