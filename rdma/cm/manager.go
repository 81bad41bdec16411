package cm

import (
	"context"
	"net/netip"

	"github.com/unifiedd/unifiedd/rdma"
)

// Manager brings queue pairs together: the kernel's ([Channel]), or that of RoCE in software (package rdma/roce/manager). The
// methods of all that it makes may be called from any goroutine; one at a time uses a Route or a Request.
type Manager interface {
	// Listen listens on an address, or on all that RDMA devices have where it is unspecified ("[::]:7174": IPv4
	// too), on that port or, where it is 0, on one that the manager chooses. So many requests may wait, others are refused; 0 is
	// DefaultBacklog.
	Listen(at netip.AddrPort, backlog int) (Listener, error)
	// Resolve finds the device and the port that lead to an address. The context bounds it.
	Resolve(ctx context.Context, p Path) (Route, error)
	// Open is how many routes, listeners, requests and connections there are that are not closed.
	Open() int
	// Close ends everything that was made from the manager: peers are told, requests that were not answered are
	// refused. Queue pairs stay their owners'.
	Close() error
}

// Listener has requests of peers.
type Listener interface {
	// Addr is where it listens.
	Addr() netip.AddrPort
	// Accept waits for a request. The error is ErrClosed when the listener, or its manager, is closed.
	Accept(ctx context.Context) (Request, error)
	// Close ends listening. Requests that nobody has taken are refused; connections stay.
	Close() error
}

// Request is a peer that wants to connect. It must be answered, by Accept, Reject or Close.
type Request interface {
	// Private is what the peer's program says: anything at all, with zeros behind it (see the package). It is
	// the caller's.
	Private() []byte
	// Address says where it came in, and with which device the queue pair for it must be made.
	Address() DeviceAddress
	// Peer is the address of who asks.
	Peer() netip.AddrPort
	// Reads is how many READs and atomics of ours the peer allows to be outstanding, and how many of its own it
	// wants.
	Reads() (ours, theirs uint8)
	// Prepare leads a queue pair from RESET to INIT, where receives can be posted. The peer may do
	// through it what access says.
	Prepare(q rdma.QueuePair, access rdma.Access) error
	// Accept connects a queue pair in INIT with the peer's, and leads it to RTS. It returns when the
	// peer is ready. When it fails the queue pair may be in any state, and is good only for Close or RESET, and the
	// request is over.
	Accept(ctx context.Context, e End) (Conn, error)
	// Reject refuses, and tells the peer's program why, in at most MostToReject bytes.
	Reject(why []byte) error
	// Close refuses without a word, unless the request is answered. A Conn that was accepted stays.
	Close() error
}

// Route is a way to a peer. It is the caller's to close, also after Connect.
type Route interface {
	// Address says the device that the queue pair must be of.
	Address() DeviceAddress
	// Prepare leads a queue pair from RESET to INIT, where receives can be posted. The peer may do
	// through it what access says.
	Prepare(q rdma.QueuePair, access rdma.Access) error
	// Connect connects a queue pair in INIT with that of the one who listens, and leads it to RTS. When it
	// fails the queue pair may be in any state, and is good only for Close or RESET, and the route only for
	// Close. The error of a peer that does not want is an *Error with its reason and what it says.
	Connect(ctx context.Context, e End) (Conn, error)
	// Close gives the route back. A Conn made through it stays.
	Close() error
}

// Conn is a connection whose queue pair is in RTS. It is the caller's to close, before the queue pair.
type Conn interface {
	// Private is what the peer's program said as it connected or accepted: anything at all, with zeros behind it (see
	// the package). It is the caller's.
	Private() []byte
	// Address says where it is.
	Address() DeviceAddress
	// Done is closed when the connection is over; before that the queue pair is led to ERR, so that everything
	// outstanding is flushed. It is not closed when the peer's machine is gone: then work requests fail.
	Done() <-chan struct{}
	// Err is nil while the connection stands. Then it says why it is over: ErrDisconnected, ErrDeviceGone or ErrClosed. It
	// says so before anything is flushed.
	Err() error
	// Close ends the connection: the queue pair goes to ERR, so that what is outstanding is flushed, and the peer is
	// told. It waits for the peer's answer for some seconds at most.
	Close() error
}
