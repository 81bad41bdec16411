package cm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
)

// Path says where to connect.
type Path struct {
	To netip.AddrPort
	// From is the local address; the zero Addr lets the kernel choose.
	From netip.Addr
	// Service is the type of service, or traffic class, of packets.
	Service uint8
}

// route implements Route.
type route struct {
	identifier *identifier
	step       string
	place      DeviceAddress
}

// Resolve finds the device and the port that lead to an address. ctx limits the time; without a
// deadline the kernel gives up after a minute.
func (c *Channel) Resolve(ctx context.Context, p Path) (Route, error) {
	i, err := c.newIdentifier(0)
	if err != nil {
		return nil, err
	}
	r := &route{identifier: i, step: fmt.Sprintf("connect to %v through rdma_cm", p.To)}
	if err := r.resolve(ctx, p); err != nil {
		return nil, errors.Join(err, i.close())
	}
	return r, nil
}

func (r *route) resolve(ctx context.Context, p Path) (err error) {
	if err := r.address(ctx, p); err != nil {
		return err
	}
	command := resolveRoute{id: r.identifier.id, timeout: milliseconds(ctx)}
	if err := r.order(ctx, "find a path", func(fd int) error { return order(fd, cmdRoute, &command) }, RouteResolved); err != nil {
		return err
	}
	r.place, err = r.identifier.place()
	return err
}

// address finds the device.
func (r *route) address(ctx context.Context, p Path) (err error) {
	command := resolveAddress{id: r.identifier.id, timeout: milliseconds(ctx)}
	if command.to, command.size, err = socketOf(p.To); err != nil {
		return err
	}
	if command.from, command.fromSize, err = socketOf(netip.AddrPortFrom(p.From, 0)); err != nil {
		return err
	}
	if p.Service != 0 {
		if err := r.identifier.channel.do(func(fd int) error { return option(fd, command.id, optionService, p.Service) }); err != nil {
			return refusal(r.step+": set the type of service", err)
		}
	}
	return r.order(ctx, "find the device", func(fd int) error { return order(fd, cmdAddress, &command) }, AddressResolved)
}

// order passes a command to the kernel and waits for its event.
func (r *route) order(ctx context.Context, what string, command func(fd int) error, want ...EventKind) error {
	step := r.step + ": " + what
	if err := r.identifier.channel.do(command); err != nil {
		return refusal(step, err)
	}
	_, err := r.identifier.wait(ctx, step, want...)
	return err
}

// milliseconds returns how long the kernel may take.
func milliseconds(ctx context.Context) uint32 {
	end, ok := ctx.Deadline()
	if !ok {
		return uint32(time.Minute / time.Millisecond)
	}
	return uint32(min(max(time.Until(end).Milliseconds(), 1), math.MaxInt32))
}

func (r *route) Address() DeviceAddress { return r.place }

func (r *route) Prepare(q rdma.QueuePair, access rdma.Access) error {
	return r.identifier.prepare(q, access)
}

func (r *route) Connect(ctx context.Context, e End) (Conn, error) {
	p, err := e.parameters()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.step, err)
	}
	i := r.identifier
	command := connect{id: i.id, parameters: p}
	if err := i.channel.do(func(fd int) error { return order(fd, cmdConnect, &command) }); err != nil {
		return nil, refusal(r.step, err)
	}
	answer, err := i.wait(ctx, r.step, ConnectResponse, Established)
	if err != nil {
		return nil, err
	}
	if err := r.establish(&e, &answer); err != nil {
		return nil, fmt.Errorf("%s: %w", r.step, err)
	}
	return newConn(i, r.place, e.Queue, answer.said.private)
}

// establish brings the queue pair to RTS and tells the peer. Over iWARP the device and the kernel
// have done both.
func (r *route) establish(e *End, answer *event) error {
	if err := r.identifier.lead(e, answer.said); err != nil {
		return err
	}
	if answer.kind == Established {
		return nil
	}
	return r.identifier.channel.do(func(fd int) error { return order(fd, cmdAccept, &accept{uid: r.identifier.uid, id: r.identifier.id}) })
}

func (r *route) Close() error {
	if r.identifier.isLed() {
		return nil
	}
	return r.identifier.close()
}
