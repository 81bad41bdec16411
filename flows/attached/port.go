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

// port is what a Receiver and a Sender have in common: the rings of one connection.
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
	size := int(wire.PortLen(got.Entries)+pageSize-1) &^ (pageSize - 1)
	if len(got.files) != 2 || got.Entries == 0 || got.Entries&(got.Entries-1) != 0 {
		return wire.ErrMessage
	}
	memory, err := unix.Mmap(int(got.files[0].Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("map the rings: %w", err)
	}
	fd, err := unix.FcntlInt(got.files[1].Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return errors.Join(err, unix.Munmap(memory))
	}
	before := p.unmap()
	p.link, p.number, p.memory, p.said = l, got.Port, memory, *got.Opened
	p.wake, p.wakeFD = os.NewFile(uintptr(fd), "wake"), fd
	for n := range p.rings {
		p.rings[n] = wire.NewRing(memory, n, got.Entries, false)
	}
	l.know(p.number, &p.closed)
	return p.client.use(l, before)
}

const pageSize = 4096

// unmap gives the rings back, and returns the connection that they were of.
func (p *port) unmap() *link {
	if p.memory == nil {
		return nil
	}
	_ = unix.Munmap(p.memory) // it is mapped
	_ = p.wake.Close()
	p.memory = nil
	p.link.forget(p.number)
	return p.link
}

// close ends the port.
func (p *port) close() error {
	if p.memory == nil {
		return nil
	}
	var err error
	if p.link.alive() && p.closed.Load() == nil {
		err = p.link.write(&wire.Close{Port: p.number})
	}
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		err = nil // it has ended already
	}
	return errors.Join(err, p.client.use(nil, p.unmap()))
}

// err says why the port passes nothing, or nil.
func (p *port) err() error {
	if c := p.closed.Load(); c != nil {
		return c
	}
	if p.memory == nil || !p.link.alive() {
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
	// A poll of at most this time notices that the daemon, which then wakes nobody, or ctx has ended.
	fds := []unix.PollFd{{Fd: int32(p.wakeFD), Events: unix.POLLIN}}
	for ctx.Err() == nil && p.err() == nil {
		left := time.Until(until)
		if left <= 0 {
			return nil
		}
		n, err := unix.Poll(fds, int(min(left, pollTime)/time.Millisecond)+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for the daemon: %w", err)
		}
		if n > 0 {
			var b [64]byte
			_, _ = unix.Read(p.wakeFD, b[:]) // it does not block
			return nil
		}
	}
	return context.Cause(ctx)
}

// pollTime is how long a wait goes on without a look at the connection.
const pollTime = 20 * time.Millisecond

// reopen attaches again after the connection or the port has ended, and opens the port anew. It waits until that
// succeeds or ctx ends.
func (p *port) reopen(ctx context.Context) error { return p.client.reopen(ctx, p.openOn) }

// reopen attaches again if the connection has ended, and calls open until it succeeds or ctx ends.
func (k *Client) reopen(ctx context.Context, open func(*link) error) error {
	for pause := leastPause; ; pause = min(2*pause, mostPause) {
		l, until, err := k.again(time.Now())
		if err == nil {
			if err = open(l); err == nil {
				return nil
			}
			until = time.Now().Add(pause)
		}
		if refused, is := errors.AsType[*RefusedError](err); is && refused.permanent() {
			return err
		}
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		select {
		case <-time.After(time.Until(until)):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
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
