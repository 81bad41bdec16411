package cm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/unifiedd/unifiedd/rdma"
)

// DefaultBacklog is the backlog of Listen if it is 0.
const DefaultBacklog = 64

// listener implements Listener.
type listener struct {
	identifier *identifier
	local      netip.AddrPort
}

// Listen implements Manager. If the port is 0 the kernel chooses one.
func (c *Channel) Listen(at netip.AddrPort, backlog int) (Listener, error) {
	if backlog < 1 {
		backlog = DefaultBacklog
	}
	i, err := c.newIdentifier(backlog)
	if err != nil {
		return nil, err
	}
	l := &listener{identifier: i}
	if err := l.listen(at, backlog); err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %v through rdma_cm: %w", at, err), i.close())
	}
	return l, nil
}

func (l *listener) listen(at netip.AddrPort, backlog int) error {
	i := l.identifier
	command := bind{id: i.id}
	var err error
	if command.addr, command.size, err = socketOf(at); err != nil {
		return err
	}
	if err := i.channel.do(func(fd int) error { return order(fd, cmdBind, &command) }); err != nil {
		return refusal("bind", err)
	}
	if err := i.channel.do(func(fd int) error { return order(fd, cmdListen, &listen{id: i.id, backlog: uint32(backlog)}) }); err != nil {
		return refusal("listen", err)
	}
	p, err := i.place()
	l.local = p.Local
	return err
}

func (l *listener) Addr() netip.AddrPort { return l.local }

// Accept skips requests that have ended in the meantime.
func (l *listener) Accept(ctx context.Context) (Request, error) {
	for {
		select {
		case e := <-l.identifier.requests:
			if r, err := l.request(e); err == nil {
				return r, nil
			}
		case <-l.identifier.done:
			return nil, fmt.Errorf("listen on %v through rdma_cm: %w", l.local, l.identifier.why())
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (l *listener) request(e event) (Request, error) {
	c := l.identifier.channel
	i := c.number()
	if err := c.register(i, e.id); err != nil {
		return nil, err
	}
	r := &request{identifier: i, said: e.said}
	var err error
	if r.place, err = i.place(); err != nil {
		return nil, errors.Join(err, i.close())
	}
	return r, nil
}

func (l *listener) Close() error { return l.identifier.close() }

// request implements Request.
type request struct {
	identifier *identifier
	said       said
	place      DeviceAddress
}

func (r *request) Private() []byte { return r.said.private }

func (r *request) Address() DeviceAddress { return r.place }

func (r *request) Reads() (ours, theirs uint8) { return r.said.reads, r.said.remoteReads }

func (r *request) Prepare(q rdma.QueuePair, access rdma.Access) error {
	return r.identifier.prepare(q, access)
}

func (r *request) Accept(ctx context.Context, e End) (Conn, error) {
	step := fmt.Sprintf("accept %v through rdma_cm", r.place.Remote)
	err := r.accept(ctx, step, e)
	if err == nil {
		var conn Conn
		if conn, err = newConn(r.identifier, r.place, e.Queue, r.said.private); err == nil {
			return conn, nil
		}
	}
	return nil, errors.Join(err, r.Close())
}

func (r *request) accept(ctx context.Context, step string, e End) error {
	e.Reads, e.RemoteReads = min(e.Reads, r.said.reads), min(e.RemoteReads, r.said.remoteReads)
	p, err := e.parameters()
	if err == nil {
		err = r.identifier.lead(&e, r.said)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	i := r.identifier
	command := accept{uid: i.uid, id: i.id, parameters: p}
	if err := i.channel.do(func(fd int) error { return order(fd, cmdAccept, &command) }); err != nil {
		return refusal(step, err)
	}
	_, err = i.wait(ctx, step, Established)
	return err
}

func (r *request) Reject(why []byte) error {
	command := reject{id: r.identifier.id}
	var err error
	if command.length, err = private(&command.private, why); err == nil {
		err = r.identifier.channel.do(func(fd int) error { return order(fd, cmdReject, &command) })
	}
	if err != nil {
		err = refusal(fmt.Sprintf("reject %v through rdma_cm", r.place.Remote), err)
	}
	return errors.Join(err, r.Close())
}

func (r *request) Peer() netip.AddrPort { return r.place.Remote }

func (r *request) Close() error {
	if r.identifier.isLed() {
		return nil
	}
	return r.identifier.close()
}
