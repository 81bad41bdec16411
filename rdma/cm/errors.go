package cm

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

var (
	// ErrClosed means that this side has closed the object, or its channel.
	ErrClosed = errors.New("closed")
	// ErrRejected means that the peer, or its kernel, refused the connection: Error.Reason.
	ErrRejected = errors.New("rejected")
	// ErrUnreachable means that no peer answers at an address, or that no device leads there.
	ErrUnreachable = errors.New("unreachable")
	// ErrDisconnected means that the peer ended the connection, or died.
	ErrDisconnected = errors.New("the peer has disconnected")
	// ErrDeviceGone means that the device was removed.
	ErrDeviceGone = errors.New("the device is gone")
)

// Error is the error of a connection that failed or ended. It wraps one of the errors above, and
// the kernel's errno if there is one.
type Error struct {
	Step  string
	Event EventKind
	Kind  error
	Errno unix.Errno
	// Reason is why the peer rejected the connection; InfiniBand and RoCE only.
	Reason Reason
	// Private is the private data of a peer that rejects: untrusted.
	Private []byte
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%s: %v", e.Step, e.Kind)
	switch {
	case e.Reason != 0:
		text += fmt.Sprintf(": %v", e.Reason)
	case e.Errno != 0:
		text += fmt.Sprintf(": %v", e.Errno)
	}
	if check := e.check(); check != "" {
		text += " (check " + check + ")"
	}
	return text + fmt.Sprintf(" [%v]", e.Event)
}

func (e *Error) check() string {
	switch {
	case e.Reason != 0:
		return reasonTexts[e.Reason].check
	case e.Errno == unix.ECONNREFUSED:
		return reasonTexts[ReasonNoListener].check
	case e.Event == AddressError:
		return "that a route leads to the address, that it answers to ARP, and that the network interface is an RDMA device's (rdma link)"
	case e.Kind == ErrUnreachable:
		return "that the peer is up, and that packets pass (RoCE: UDP port 4791)"
	}
	return ""
}

// Unwrap returns the kind and the errno.
func (e *Error) Unwrap() []error {
	if e.Errno != 0 {
		return []error{e.Kind, e.Errno}
	}
	return []error{e.Kind}
}

// failure translates an event into the error of the step that waited for another one.
func (e *event) failure(step string) error {
	err := &Error{Step: step, Event: e.kind, Kind: ErrUnreachable, Private: e.said.private}
	if e.status < 0 {
		err.Errno = unix.Errno(-e.status)
	}
	switch e.kind {
	case Rejected:
		err.Kind = ErrRejected
		if e.status > 0 && e.status < 256 {
			err.Reason = Reason(e.status)
		}
	case Disconnected:
		err.Kind = ErrDisconnected
	case DeviceRemoval:
		err.Kind = ErrDeviceGone
	}
	return err
}

// refusal is the error of a command that the kernel refused.
func refusal(step string, err error) error {
	remedy := remedies[errnoOf(err)]
	if remedy != "" {
		remedy = " (" + remedy + ")"
	}
	return fmt.Errorf("%s: %w%s", step, err, remedy)
}

func errnoOf(err error) (errno unix.Errno) {
	errors.As(err, &errno)
	return errno
}

var remedies = map[unix.Errno]string{
	unix.EADDRINUSE:    "another program listens on that port: end it, or take another port",
	unix.EADDRNOTAVAIL: "the address is none of this machine's, or its interface is down",
	unix.ENODEV:        "no RDMA device has that address: rdma link says which interfaces have one, and its port must be active",
	unix.ENETUNREACH:   "no route leads there",
	unix.EHOSTUNREACH:  "no route leads there",
	unix.EACCES:        "a process that changed its user or its capabilities cannot use what it opened before; ports below 1024 are root's",
	unix.ENOMEM:        "the kernel has no room for more",
	unix.EINVAL:        "the connection is in another state, or has ended",
}
