package attached

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
)

// port is what a Receiver, a Sender and a BlockReader have in common: the rings of one connection.
type port struct {
	client *Client
	open   wire.Open
	link   *link
	number uint32
	memory []byte
	rings  [wire.Rings]*wire.Ring
	wake   *os.File
	wakeFD int
	closed atomic.Pointer[RefusedError]
	said   wire.Opened
	now    *opening
	again  retry
}

// opening is one time that a port was opened. What the program has got over it names it: what came over an earlier one
// cannot be given back any more, and memory stays mapped as long as the program has something in it.
type opening struct {
	link *link
	held int // what the program has; and one more while the port is open
}

// drop says that the program has one thing less of an opening.
func (p *port) drop(o *opening) {
	if o.held--; o.held == 0 {
		_ = p.client.unuse(o.link) // it is mapped
	}
}

// openPort opens a port on a connection that goes on.
func (k *Client) openPort(o wire.Open) (*port, error) {
	k.mu.Lock()
	l := k.link
	k.mu.Unlock()
	if l == nil || !l.alive() {
		return nil, fmt.Errorf("open flow %s: %w", o.Flow, ErrGone)
	}
	p := &port{client: k, open: o, wakeFD: -1}
	if err := p.openOn(l); err != nil {
		return nil, fmt.Errorf("open flow %s: %w", o.Flow, err)
	}
	return p, nil
}

// openOn opens the port on a connection.
func (p *port) openOn(l *link) error {
	got, err := p.client.open(l, &p.open)
	if err != nil {
		return err
	}
	defer closeFiles(got.files)
	if len(got.files) != 2 || got.Entries == 0 || got.Entries&(got.Entries-1) != 0 || got.Entries > maxEntries {
		return wire.ErrMessage
	}
	size := int(wire.PortLen(got.Entries)+pageSize-1) &^ (pageSize - 1)
	if err := hasSize(got.files[0], uint64(size)); err != nil {
		return err
	}
	memory, err := unix.Mmap(int(got.files[0].Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("map the rings: %w", err)
	}
	fd, err := unix.FcntlInt(got.files[1].Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return errors.Join(err, unix.Munmap(memory))
	}
	p.unmap()
	p.link, p.number, p.memory, p.said = l, got.Port, memory, *got.Opened
	p.wake, p.wakeFD = os.NewFile(uintptr(fd), "wake"), fd
	for n := range p.rings {
		p.rings[n] = wire.NewRing(memory, n, got.Entries, false)
	}
	p.now = &opening{link: l, held: 1}
	p.client.use(l)
	l.know(p.number, &p.closed)
	return nil
}

const (
	pageSize   = 4096
	maxEntries = 1 << 20 // of a ring
)

// unmap gives the rings back.
func (p *port) unmap() {
	if p.memory == nil {
		return
	}
	_ = unix.Munmap(p.memory) // it is mapped
	_ = p.wake.Close()
	p.memory = nil
	p.link.forget(p.number)
	p.drop(p.now)
}

// close ends the port.
func (p *port) close() error {
	if p.memory == nil {
		return nil
	}
	var err error
	if p.link.alive() && p.closed.Load() == nil {
		err = p.link.end(p.number)
	}
	p.unmap()
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, net.ErrClosed) {
		return nil // it has ended already
	}
	return err
}

// err says why the port passes nothing, or nil.
func (p *port) err() error {
	if c := p.closed.Load(); c != nil {
		return c
	}
	if p.memory == nil {
		return net.ErrClosed
	}
	if !p.link.alive() {
		return ErrGone
	}
	return nil
}

// publish shows what was put into a ring to the daemon, and wakes it if it waits.
func (p *port) publish(ring int) {
	if p.rings[ring].Publish() {
		_ = unix.Send(p.wakeFD, wakeByte[:], unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) // EAGAIN: it is readable already
	}
}

var wakeByte = [1]byte{1}

// sleep waits until a ring has entries, ctx ends or a time passes.
func (p *port) sleep(ctx context.Context, ring int, most time.Duration) error {
	r := p.rings[ring]
	r.Sleep()
	defer r.Awake()
	if n, ok := r.Waiting(); !ok || n > 0 {
		return nil
	}
	until := time.Now().Add(most)
	if d, has := ctx.Deadline(); has && d.Before(until) {
		until = d
	}
	for ctx.Err() == nil && p.err() == nil {
		left := time.Until(until)
		if left <= 0 {
			return nil
		}
		came, err := p.link.await(ctx, p.wakeFD, min(left, longWait), p.err)
		if err != nil {
			return err
		}
		if came {
			var b [64]byte
			_, _ = unix.Read(p.wakeFD, b[:]) // it does not block
			return nil
		}
	}
	return context.Cause(ctx)
}

// reopen attaches again after the connection or the port has ended, and opens the port anew. It tries for a time. open
// says whether it has succeeded.
func (p *port) reopen(ctx context.Context, most time.Duration) (open bool, err error) {
	if p.memory == nil {
		return false, net.ErrClosed // by this program
	}
	return p.client.reopenUntil(ctx, time.Now().Add(most), &p.again, p.openOn)
}

// reopen attaches again if the connection has ended, and calls open until it succeeds or ctx ends.
func (k *Client) reopen(ctx context.Context, open func(*link) error) error {
	for again := (retry{}); ; {
		if done, err := k.reopenUntil(ctx, time.Now().Add(time.Hour), &again, open); done || err != nil {
			return err
		}
	}
}

// retry says when to try again.
type retry struct {
	pause time.Duration
	next  time.Time
}

// later notes that an attempt has failed.
func (r *retry) later() {
	r.pause = min(max(2*r.pause, leastPause), mostPause)
	r.next = time.Now().Add(r.pause)
}

// reopenUntil is reopen that gives up at some time, without an error.
func (k *Client) reopenUntil(ctx context.Context, until time.Time, again *retry, open func(*link) error) (done bool, err error) {
	for {
		at := again.next
		if !time.Now().Before(at) {
			var l *link
			if l, at, err = k.again(time.Now()); err == nil {
				if err = open(l); err == nil {
					*again = retry{}
					return true, nil
				}
				again.later()
				at = again.next
			}
		}
		if refused, is := errors.AsType[*RefusedError](err); is && refused.permanent() || errors.Is(err, net.ErrClosed) {
			return false, err
		}
		if until.Before(at) {
			at = until
		}
		select {
		case <-time.After(time.Until(at)):
		case <-ctx.Done():
			return false, errors.Join(context.Cause(ctx), err)
		}
		if !time.Now().Before(until) {
			return false, nil
		}
	}
}

// permanent reports whether another attempt is in vain.
func (e *RefusedError) permanent() bool {
	switch e.Reason {
	case wire.BadVersion.String(), wire.BadName.String(), wire.NotPermitted.String():
		return true
	}
	return false
}
