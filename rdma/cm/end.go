package cm

import (
	"fmt"

	"github.com/unifiedd/unifiedd/rdma"
)

// End is our side of a connection. A zero field means zero, and not a default: begin with Defaults.
type End struct {
	Queue rdma.QueuePair // RC, in INIT: see Prepare
	// Reads is how many of our READs and atomics may be outstanding, RemoteReads how many of the peer's. The peer may allow
	// fewer. The device must support them.
	Reads, RemoteReads uint8
	Retries            uint8 // at most 7, before RetryExceeded; the side that connects sets it for both
	RNRRetries         uint8 // at most 7; 7: no limit
	MinRNRTimer        uint8 // how long senders to us wait after receiver-not-ready
	// Timeout is the timeout for an ACK, 4.096 µs << Timeout; 0: the kernel chooses.
	Timeout uint8
	// Private is for the peer's program: at most MostToConnect, MostToAccept or MostToReject bytes.
	Private []byte
}

// The longest private data over InfiniBand and RoCE. iWARP has more.
const (
	MostToConnect = 56
	MostToAccept  = 196
	MostToReject  = 148
)

// Defaults returns the same values as package connect: a timeout of 67 ms for an ACK with six
// retries, and six retries of 0.64 ms after receiver-not-ready. Any device supports one outstanding
// READ.
func Defaults(q rdma.QueuePair) End {
	return End{Queue: q, Reads: 1, RemoteReads: 1, Retries: 6, RNRRetries: 6, MinRNRTimer: 12, Timeout: 14}
}

// Check is for managers. It refuses values that no connection can have.
func (e *End) Check() error {
	switch {
	case e.Queue == nil || e.Queue.Config().Transport != rdma.RC:
		return fmt.Errorf("rdma_cm connects RC queue pairs: %w with others", rdma.ErrUnsupported)
	case e.Retries > 7 || e.RNRRetries > 7:
		return fmt.Errorf("%d and %d retries: at most 7", e.Retries, e.RNRRetries)
	case e.Timeout > 31 || e.MinRNRTimer > 31:
		return fmt.Errorf("timeout %d, timer %d: at most 31", e.Timeout, e.MinRNRTimer)
	}
	return nil
}

// parameters returns the parameters for the kernel.
func (e *End) parameters() (p parameters, err error) {
	if err := e.Check(); err != nil {
		return p, err
	}
	p = parameters{qpn: e.Queue.QPN(), reads: e.Reads, remoteReads: e.RemoteReads, retries: e.Retries, rnrRetries: e.RNRRetries, valid: 1}
	if e.Queue.Config().Shared != nil {
		p.shared = 1
	}
	p.length, err = private(&p.private, e.Private)
	return p, err
}

// private copies private data into a command.
func private(to *[most + 1]uint8, data []byte) (uint8, error) {
	if len(data) > most {
		return 0, fmt.Errorf("private data of %d bytes: at most %d", len(data), most)
	}
	copy(to[:], data)
	return uint8(len(data)), nil
}
