package connect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
)

// Reason is why a connection failed, as a word for metrics.
type Reason string

const (
	ReasonTLS       Reason = "tls"        // no TLS, or a certificate was refused
	ReasonVersion   Reason = "version"    // the peer has another version of the protocol
	ReasonFormat    Reason = "format"     // the peer broke the protocol
	ReasonTimeout   Reason = "timeout"    // the peer was silent
	ReasonClosed    Reason = "closed"     // the peer closed the connection
	ReasonCancelled Reason = "cancelled"  // the caller ended the connection
	ReasonRefused   Reason = "refused"    // one of the programs refused
	ReasonQueuePair Reason = "queue_pair" // the device refused the agreed values
	ReasonNetwork   Reason = "network"    // anything else
	// ReasonAddressLimit and ReasonLimit: too many handshakes were in progress from the peer's
	// address, or in all.
	ReasonAddressLimit Reason = "address_limit"
	ReasonLimit        Reason = "limit"
)

// Reasons lists all reasons.
var Reasons = []Reason{ReasonTLS, ReasonVersion, ReasonFormat, ReasonTimeout, ReasonClosed, ReasonCancelled, ReasonRefused, ReasonQueuePair, ReasonNetwork,
	ReasonAddressLimit, ReasonLimit}

// Error is the error of a connection that failed.
type Error struct {
	Reason Reason
	Peer   string // address
	Step   string
	Err    error
}

func (e *Error) Error() string {
	return fmt.Sprintf("connect queue pairs with %s: %s: %v", e.Peer, e.Step, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// ReasonOf returns the reason in an error of this package; empty if there is none.
func ReasonOf(err error) Reason {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return ""
}

type versionError struct{ got uint8 }

func (e *versionError) Error() string {
	return fmt.Sprintf("the peer speaks version %d of the exchange, and this program %d: use the same release on both sides", e.got, Version)
}

type formatError struct{ text string }

func (e *formatError) Error() string { return e.text }

func malformed(format string, args ...any) error {
	return &formatError{fmt.Sprintf(format, args...)}
}

// deviceError is an error of the device.
type deviceError struct{ err error }

func (e *deviceError) Error() string { return e.err.Error() }
func (e *deviceError) Unwrap() error { return e.err }

// refusedError is the refusal of the peer's program, or of ours.
type refusedError struct{ text string }

func (e *refusedError) Error() string { return e.text }

// tlsError is a failed TLS handshake.
type tlsError struct{ err error }

func (e *tlsError) Error() string { return e.err.Error() }
func (e *tlsError) Unwrap() error { return e.err }

// reasonOf returns the reason for the error of a step.
func reasonOf(err error) Reason {
	if e, ok := errors.AsType[*limitError](err); ok {
		return e.reason
	}
	switch {
	case is[*versionError](err):
		return ReasonVersion
	case is[*formatError](err):
		return ReasonFormat
	case is[*deviceError](err):
		return ReasonQueuePair
	case is[*refusedError](err):
		return ReasonRefused
	case errors.Is(err, context.Canceled):
		return ReasonCancelled
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return ReasonTimeout
	case is[*tlsError](err), remoteAlert(err):
		return ReasonTLS
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return ReasonClosed
	}
	return ReasonNetwork
}

func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// remoteAlert reports whether the peer sent a TLS alert. In TLS 1.3 a client learns that its
// certificate was refused only when it reads.
func remoteAlert(err error) bool {
	e, ok := errors.AsType[*net.OpError](err)
	return ok && e.Op == "remote error"
}
