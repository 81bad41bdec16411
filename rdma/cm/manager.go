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

// Manager connects queue pairs by IP address and port. There are two: the kernel's ([Channel]), and
// that of RoCE in software (package rdma/roce/cm). All methods may be called from any goroutine,
// except that one goroutine at a time may use a Route or a Request.
type Manager interface {
	// Listen listens on an address, or on all addresses of RDMA devices if it is unspecified
	// ("[::]:7174" includes IPv4). If the port is 0 the manager chooses one. backlog is how many
	// requests may wait; the manager refuses more. 0 means DefaultBacklog.
	Listen(at netip.AddrPort, backlog int) (Listener, error)
	// Resolve finds the device and the port that lead to an address. ctx limits the time.
	Resolve(ctx context.Context, p Path) (Route, error)
	// Open returns how many routes, listeners, requests and connections are not closed.
	Open() int
	// Close ends everything that was made from the manager. It informs connected peers and refuses
	// open requests. Queue pairs are not closed.
	Close() error
}

// Listener receives the requests of peers.
type Listener interface {
	// Addr returns where it listens.
	Addr() netip.AddrPort
	// Accept waits for a request. The error is ErrClosed if the listener or its manager is closed.
	Accept(ctx context.Context) (Request, error)
	// Close ends listening. Requests that were not accepted are refused; connections stay.
	Close() error
}

// Request is a peer's request to connect. The caller must answer it by Accept, Reject or Close.
type Request interface {
	// Private returns the private data of the peer's program: untrusted, with zeros after it (see the package). It is
	// the caller's to keep.
	Private() []byte
	// Address returns where it arrived, and the device for the queue pair.
	Address() DeviceAddress
	// Peer returns the address of the peer.
	Peer() netip.AddrPort
	// Reads returns how many outstanding READs and atomics of ours the peer allows, and how many of its own it
	// wants.
	Reads() (ours, theirs uint8)
	// Prepare brings a queue pair from RESET to INIT, where receives can be posted. access is the
	// peer's access to memory through it.
	Prepare(q rdma.QueuePair, access rdma.Access) error
	// Accept connects a queue pair in INIT with the peer's, and brings it to RTS. It returns when the
	// peer is ready. If it fails the queue pair may be in any state and must be closed or reset, and the
	// request has ended.
	Accept(ctx context.Context, e End) (Conn, error)
	// Reject refuses with private data for the peer's program, at most MostToReject bytes.
	Reject(why []byte) error
	// Close refuses without private data, unless the request is answered. An accepted Conn stays.
	Close() error
}

// Route is a resolved route to a peer. The caller closes it, also after Connect.
type Route interface {
	// Address returns the device for the queue pair.
	Address() DeviceAddress
	// Prepare brings a queue pair from RESET to INIT, where receives can be posted. access is the
	// peer's access to memory through it.
	Prepare(q rdma.QueuePair, access rdma.Access) error
	// Connect connects a queue pair in INIT with the listener's, and brings it to RTS. If it
	// fails the queue pair may be in any state and must be closed or reset, and the route must be
	// closed. If the peer refuses, the error is an *Error with its reason and private data.
	Connect(ctx context.Context, e End) (Conn, error)
	// Close releases the route. A Conn made through it stays.
	Close() error
}

// Conn is a connection whose queue pair is in RTS. The caller closes it before the queue pair.
type Conn interface {
	// Private returns the private data of the peer's program: untrusted, with zeros after it (see
	// the package). It is the caller's to keep.
	Private() []byte
	// Address returns the device and the addresses of both sides.
	Address() DeviceAddress
	// Done is closed when the connection has ended. Before that the queue pair is put into ERR, so that everything
	// outstanding is flushed. It is not closed if the peer's machine is dead: then work requests fail.
	Done() <-chan struct{}
	// Err returns nil while the connection exists, and then why it has ended: ErrDisconnected,
	// ErrDeviceGone or ErrClosed. It is set before any request is flushed.
	Err() error
	// Close ends the connection: it puts the queue pair into ERR, so that everything outstanding is
	// flushed, and informs the peer. It waits at most some seconds for the peer's answer.
	Close() error
}

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
