package order

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/unifiedd/unifiedd/flows/attach"
	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/internal/tcpsend"
)

// gift is a connection that a program has given.
type gift struct {
	conn   *tcpsend.Conn
	place  int
	ended  func(why string) // tells the program that the flow does not use it any more
	closed chan struct{}    // closed when that is so
}

// takeOverTime is how long a program's connection may take until the kernel has sent what the program has written.
const takeOverTime = 2 * time.Second

var (
	errNotGiven = fmt.Errorf("no connection is given: %w", attach.ErrGiveFirst)
	errTakenUp  = errors.New("the connection is being taken up")
	errWanted   = errors.New("the program that has given the connection has ended, or wants it back")
	errEnds     = errors.New("the flow ends")
)

// offer takes a connection of a program of a user. It is attach.TakerConfig's Take.
func (k *keeper) offer(fd int, user uint32, ended func(why string)) (release func(), err error) {
	if !k.taken.CompareAndSwap(false, true) {
		return nil, fmt.Errorf("it has a connection already: %w", wire.Busy)
	}
	g := &gift{ended: ended, closed: make(chan struct{})}
	err = k.takeOver(g, fd, user)
	if err == nil {
		err = k.queue(g)
	}
	if err != nil {
		k.failed.Add(1)
		k.taken.Store(false)
		return nil, err
	}
	return func() {
		g.conn.End(errWanted)
		<-g.closed
	}, nil
}

// takeOver checks a connection, which must be the user's own, to the exchange, and on the flow's interface.
func (k *keeper) takeOver(g *gift, fd int, user uint32) error {
	ctx, cancel := context.WithTimeout(k.ctx, takeOverTime)
	defer cancel()
	err := k.here.Do(func() (err error) {
		g.conn, err = tcpsend.TakeOver(ctx, fd, tcpsend.Config{Interface: k.net.Index()})
		return err
	})
	if errors.Is(err, tcpsend.ErrInUse) {
		return fmt.Errorf("%w: %w", err, wire.Busy)
	}
	if err != nil {
		return err
	}
	if err = k.fits(ctx, g.conn, user); err == nil {
		g.place, err = k.place(g.conn)
	}
	if err != nil {
		return errors.Join(err, g.conn.Close())
	}
	return nil
}

// fits checks who has connected, and to whom.
func (k *keeper) fits(ctx context.Context, c *tcpsend.Conn, user uint32) error {
	if owner := c.Routing().UID; owner != user {
		return fmt.Errorf("its socket belongs to user %d, and the program to user %d: connect as that user", owner, user)
	}
	if k.peer == "" {
		return nil
	}
	all, err := Addresses(ctx, k.peer) // each time: the exchange may move
	if is := func(a netip.AddrPort) bool { return netip.AddrPortFrom(a.Addr().WithZone(""), a.Port()) == c.Remote() }; err == nil && !slices.ContainsFunc(all, is) {
		err = fmt.Errorf("it is a connection to %s, and the exchange is %s (to.order.peer)", c.Remote(), k.peer)
	}
	return err
}

// queue passes a connection to the goroutine, unless that has ended.
func (k *keeper) queue(g *gift) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.finished {
		return errors.Join(errEnds, g.conn.Close())
	}
	k.err = errTakenUp
	k.gifts <- g // at most one is taken
	return nil
}

// finish keeps programs from giving further connections, and returns one that the goroutine has not got; nil: there is
// none.
func (k *keeper) finish() *gift {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.finished = true
	select {
	case g := <-k.gifts:
		return g
	default:
		return nil
	}
}

// drop closes the flow's copy of a connection, and tells the program, which may give another one then.
func (k *keeper) drop(g *gift, why error) error {
	err := g.conn.Close()
	k.taken.Store(false)
	close(g.closed)
	if !errors.Is(why, errWanted) {
		g.ended(why.Error())
	}
	return err
}
