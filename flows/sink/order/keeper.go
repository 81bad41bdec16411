package order

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/internal/osthread"
	"github.com/unifiedd/unifiedd/internal/tcpsend"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/network"
)

// keeper connects, or takes a connection of a program; follows changes of the route; and begins again when the connection
// has ended.
type keeper struct {
	target string // host:port of the exchange
	giver  string // name of the program that gives connections; empty: the keeper connects
	peer   string // host:port that such connections must be to; empty: any
	retry  time.Duration
	net    *network.Interface
	here   osthread.Namespace
	log    *slog.Logger
	shut   func(why string) error // closes the program's ports

	incoming atomic.Pointer[tcpsend.Conn] // for the worker
	ended    chan *tcpsend.Conn           // from the worker
	ready    atomic.Bool                  // the worker has a connection, or gets one
	ctx      context.Context
	cancel   context.CancelFunc
	going    sync.WaitGroup
	current  *gift       // of the goroutine, and of end after it; also if no program has given it
	gifts    chan *gift  // from programs
	taken    atomic.Bool // a program has given a connection that the flow still has

	connections counter.Counter // of the goroutine
	failed      counter.Counter // of the goroutine, or of programs' sessions, one at a time

	mu    sync.Mutex
	err   error         // why there is no connection
	path  error         // why segments do not find their way
	way   *tcpsend.Path // nil: not known
	begun bool

	finished bool // nothing is taken from programs any more
}

// Times of the keeper.
const (
	connectTime = 5 * time.Second
	resolveTime = time.Second
	watchTime   = 50 * time.Millisecond
)

func newKeeper(o *config.Order, n *network.Interface, here osthread.Namespace, log *slog.Logger) *keeper {
	k := &keeper{target: o.Connect, giver: o.Given, peer: o.Peer, retry: o.Retry, net: n, here: here, log: log, ended: make(chan *tcpsend.Conn, 1), gifts: make(chan *gift, 1), err: errNotYet}
	if k.giver != "" {
		k.err = errNotGiven
	}
	k.shut = func(string) error { return nil }
	k.ctx, k.cancel = context.WithCancel(context.Background())
	return k
}

var errNotYet = errors.New("not connected yet")

// begin starts the goroutine.
func (k *keeper) begin() {
	k.begun = true
	k.going.Go(k.run)
}

// end ends the goroutine, and closes the connection. The worker must not use it any more.
func (k *keeper) end() error {
	k.cancel()
	k.going.Wait()
	var errs []error
	for _, g := range []*gift{k.current, k.finish()} {
		if g != nil {
			errs = append(errs, k.drop(g, errEnds))
		}
	}
	k.current = nil
	return errors.Join(errs...)
}

// take returns a new connection, or nil. It is for the worker's thread.
func (k *keeper) take() *tcpsend.Conn {
	if k.incoming.Load() == nil {
		return nil
	}
	return k.incoming.Swap(nil)
}

// giveBack returns a connection. It is for the worker's thread, once for each connection.
func (k *keeper) giveBack(c *tcpsend.Conn) { k.ended <- c }

// notReady returns why there is no connection, or nil.
func (k *keeper) notReady() error {
	if k.ready.Load() {
		return nil
	}
	return k.waitsFor()
}

// waitsFor returns why there is no connection, or nil.
func (k *keeper) waitsFor() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err == nil {
		return nil
	}
	if k.giver != "" {
		return fmt.Errorf("connection of program %s: %w", k.giver, k.err)
	}
	return fmt.Errorf("exchange %s: %w", k.target, k.err)
}

func (k *keeper) note(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
}

// pathError is why segments of ours do not find their way; empty: they do.
func (k *keeper) pathError() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.path == nil {
		return ""
	}
	return k.path.Error()
}

// follows returns the path of segments; nil: not known.
func (k *keeper) follows() *tcpsend.Path {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.way
}

func (k *keeper) notePath(p *tcpsend.Path, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.way, k.path = p, err
}

// run is the goroutine.
func (k *keeper) run() {
	for {
		err := k.once()
		if k.ctx.Err() != nil {
			return
		}
		if k.giver != "" {
			continue
		}
		k.note(err)
		select {
		case <-time.After(k.retry):
		case <-k.ctx.Done():
			return
		}
	}
}

// once keeps one connection. It returns why there is none.
func (k *keeper) once() error {
	g, err := k.next()
	if err != nil {
		return err
	}
	k.current = g
	c := g.conn
	k.log.Info("connected to the exchange", "local", c.Local().String(), "remote", c.Remote().String(), "round_trip", c.RoundTrip())
	k.connections.Add(1)
	f := &follower{keeper: k, conn: c, place: g.place}
	f.follow() // so that the first order may leave at once
	k.note(nil)
	k.incoming.Store(c)
	k.ready.Store(true)
	if !f.run() {
		return nil // the flow ends
	}
	k.ready.Store(false)
	k.notePath(nil, nil)
	k.current = nil
	why := c.Err()
	ended := fmt.Errorf("the connection has ended: %w", why)
	if k.giver != "" {
		ended = fmt.Errorf("%w: %w", ended, errNotGiven)
	}
	k.note(ended)
	k.log.Warn("the connection to the exchange has ended", "local", c.Local().String(), "remote", c.Remote().String(), "err", why)
	err = errors.Join(k.drop(g, why), k.shut("the connection to the exchange has ended: "+why.Error()))
	if err != nil {
		k.log.Error("the end of a connection to the exchange", "err", err)
	}
	return why
}

// next connects, or waits until a program gives a connection.
func (k *keeper) next() (*gift, error) {
	if k.giver != "" {
		select {
		case g := <-k.gifts:
			return g, nil
		case <-k.ctx.Done():
			return nil, errEnds
		}
	}
	g := &gift{ended: func(string) {}, closed: make(chan struct{})}
	var err error
	if g.conn, g.place, err = k.connect(); err != nil {
		k.failed.Add(1)
		return nil, err
	}
	return g, nil
}

// connect connects to the exchange, at one address after the other if its name has several.
func (k *keeper) connect() (c *tcpsend.Conn, place int, err error) {
	ctx, cancel := context.WithTimeout(k.ctx, connectTime)
	all, err := Addresses(ctx, k.target) // each time: the exchange may move
	cancel()
	if err != nil {
		return nil, 0, err
	}
	var errs []error
	for _, remote := range all {
		if c, place, err = k.dial(remote); err == nil || k.ctx.Err() != nil {
			return c, place, err
		}
		errs = append(errs, err)
	}
	return nil, 0, errors.Join(errs...)
}

// dial connects to an address.
func (k *keeper) dial(remote netip.AddrPort) (c *tcpsend.Conn, place int, err error) {
	err = k.here.Do(func() (err error) {
		ctx, cancel := context.WithTimeout(k.ctx, connectTime)
		defer cancel()
		c, err = tcpsend.Dial(ctx, tcpsend.Config{Remote: remote, Interface: k.net.Index()})
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	if place, err = k.place(c); err != nil {
		return nil, 0, errors.Join(err, c.Close())
	}
	return c, place, nil
}

// place returns the place of a connection's address in the table of the interface.
func (k *keeper) place(c *tcpsend.Conn) (int, error) {
	local, remote := c.Local().Addr(), c.Remote().Addr()
	for _, e := range k.net.GIDs() {
		if e.GID.Addr() == local {
			return e.Index, nil
		}
	}
	return 0, fmt.Errorf("the way to %s leads from %s, which is no address of %s or of a VLAN on it (see: ip route get %s)", remote, local, k.net.Name(), remote)
}

// follower keeps the path of a connection up to date.
type follower struct {
	*keeper
	conn    *tcpsend.Conn
	place   int
	tracked *network.TrackedRoute // nil: the next hop was never known
	last    tcpsend.Path
	known   bool
}

// run returns when the connection has ended, or returns false when the flow ends.
func (f *follower) run() bool {
	defer func() {
		if f.tracked != nil {
			f.tracked.Drop()
		}
	}()
	for {
		select {
		case <-f.ended:
			return true
		case <-f.ctx.Done():
			return false
		default:
		}
		fds := []unix.PollFd{{Fd: int32(f.net.FD()), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, int(watchTime/time.Millisecond)); err != nil && !errors.Is(err, unix.EINTR) {
			time.Sleep(watchTime)
		}
		for {
			if _, more := f.net.Next(); !more {
				break
			}
		}
		f.follow()
	}
}

// follow sets the path as it is now.
func (f *follower) follow() {
	r, err := f.route()
	if err == nil && r.Local {
		err = fmt.Errorf("%s is an address of this host, to which packets leave through no interface", f.conn.Remote().Addr())
	}
	if err != nil {
		f.notePath(nil, err)
		f.conn.SetPath(nil)
		f.known = false
		return
	}
	p := tcpsend.Path{Source: r.SourceMAC, Destination: r.DestinationMAC, HopLimit: r.HopLimit, MTU: r.MTU}
	for i := range min(len(p.Tags), len(r.Tags)) {
		p.Tags[i] = tcpsend.Tag{Protocol: r.Tags[i].Type, Control: r.Tags[i].TCI}
	}
	if f.known && p == f.last {
		return
	}
	f.last, f.known = p, true
	f.notePath(&p, nil)
	f.conn.SetPath(&p)
}

// route returns the route as it is now. An address that was removed and is there again may have another place.
func (f *follower) route() (network.Route, error) {
	place, err := f.keeper.place(f.conn)
	if err != nil {
		return network.Route{}, err
	}
	if f.tracked != nil && place != f.place {
		f.tracked.Drop()
		f.tracked = nil
	}
	f.place = place
	if f.tracked == nil {
		ctx, cancel := context.WithTimeout(f.ctx, resolveTime)
		defer cancel()
		r, err := f.net.ResolveConnection(ctx, f.place, rdma.GIDOf(f.conn.Remote().Addr()), f.connection())
		if err != nil {
			return r, err
		}
		if f.tracked, err = f.net.Track(r); err != nil {
			return r, err
		}
	}
	return f.tracked.Route()
}

// connection is what the kernel's routing policy may ask for.
func (f *follower) connection() network.Connection {
	of := f.conn.Routing()
	return network.Connection{
		LocalPort: f.conn.Local().Port(), RemotePort: f.conn.Remote().Port(), Mark: of.Mark, UID: of.UID, Bound: of.Bound, Class: of.Class,
	}
}
