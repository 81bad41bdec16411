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

// Reason is why a peer, or its kernel, rejected a connection over InfiniBand or RoCE: enum ib_cm_rej_reason of the
// kernel's include/rdma/ib_cm.h, with its numbers (IBTA specification, volume 1, table 112).
type Reason uint8

const (
	ReasonNoQueuePair  Reason = 1
	ReasonNoResources  Reason = 3
	ReasonTimeout      Reason = 4
	ReasonUnsupported  Reason = 5
	ReasonNoListener   Reason = 8 // invalid service ID
	ReasonStale        Reason = 10
	ReasonInvalidGID   Reason = 12
	ReasonInvalidMTU   Reason = 26
	ReasonTooManyReads Reason = 27
	ReasonConsumer     Reason = 28 // the program rejected it
)

// reasonTexts are the specification's names, and hints what to check.
var reasonTexts = map[Reason]struct{ name, check string }{
	ReasonNoQueuePair:  {"no queue pair available", "the peer's limits"},
	ReasonNoResources:  {"no resources", "that the peer's program takes requests as fast as they come"},
	ReasonTimeout:      {"timeout", "that the peer's program is alive"},
	ReasonUnsupported:  {"unsupported request", "that the peer takes RC connections"},
	ReasonNoListener:   {"invalid service ID", "that a program listens on that port there, through rdma_cm, and on that address"},
	ReasonStale:        {"stale connection", "nothing: the peer still has a connection of an earlier queue pair with this number; try again"},
	ReasonInvalidGID:   {"primary remote GID rejected", "that the address is the peer's"},
	ReasonInvalidMTU:   {"invalid path MTU", "that both network interfaces have the same MTU"},
	ReasonTooManyReads: {"too many READs outstanding", "how many the peer allows"},
	ReasonConsumer:     {"rejected by the peer's program", "what it says"},
}

func (r Reason) String() string {
	if t, ok := reasonTexts[r]; ok {
		return t.name
	}
	return fmt.Sprintf("reason %d", uint8(r))
}
