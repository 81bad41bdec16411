package cm

import (
	"fmt"

	"github.com/unifiedd/unifiedd/rdma"
)

// End is our side of a connection. The zero value of a field is that value, not a default: begin with
// Defaults.
type End struct {
	Queue rdma.QueuePair // RC, in INIT: see Prepare
	// Reads is how many READs and atomics of ours may be outstanding, RemoteReads how many of the peer's; the peer may allow
	// fewer. The device must be able to.
	Reads, RemoteReads uint8
	Retries            uint8 // at most 7, before RetryExceeded; the side that connects says it for both
	RNRRetries         uint8 // at most 7, which goes on for ever
	MinRNRTimer        uint8 // what senders to us are told to wait for a receive
	// Timeout is how long an acknowledgement is waited for, 4.096 µs << it; 0 has the kernel say it.
	Timeout uint8
	// Private is for the peer's program: MostToConnect, MostToAccept or MostToReject bytes.
	Private []byte
}

// The longest private data over InfiniBand and RoCE. iWARP has more.
const (
	MostToConnect = 56
	MostToAccept  = 196
	MostToReject  = 148
)

// Defaults are those of package connect: an acknowledgement is waited for 67 ms and six times more, a receive of the
// peer's six times 0.64 ms. One READ at a time is what any device can.
func Defaults(q rdma.QueuePair) End {
	return End{Queue: q, Reads: 1, RemoteReads: 1, Retries: 6, RNRRetries: 6, MinRNRTimer: 12, Timeout: 14}
}

// Check is for managers: it refuses what no connection can have.
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

// parameters are what the kernel is told.
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
