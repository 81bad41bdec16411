package stream

import (
	"time"

	"github.com/unifiedd/unifiedd/rdma"
)

// probeEvery is how often a sender with several paths looks whether its peer is silent. With the retries of its device it
// leaves a path within a second.
const probeEvery = 100 * time.Millisecond

// probeID marks the IDs of probes. The rest of the ID is that of the request before.
const probeID = 1 << 62

// Probe finds out whether a peer that says nothing is slow, or its path has failed.
//
// The device of a sender repeats what the other device has not acknowledged. When all of it is acknowledged, and the
// peer's own messages do not arrive, nothing is repeated that could fail. So the sender posts a request without bytes,
// which the other device answers alone, however slow its program is. It takes no receive there. If it is not answered,
// the queue pair fails as with any other request.
//
// A Probe is that of one connection, and belongs to the worker's thread. The zero value is ready.
type Probe struct {
	waited bool // something was expected at the last look
	heard  bool // the peer has said something since
	under  bool // a probe is posted, and not completed
}

// Looks calls look on the worker's thread every now and then while waits, which any goroutine may call, returns true. The
// caller calls stop before it gives up the connection. Then look is not called any more.
func Looks(do Doer, waits func() bool, look func()) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(probeEvery)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				if waits() && onWorker(do, look) != nil {
					return // the worker has ended, which the caller finds out, too
				}
			}
		}
	}()
	return func() { close(end); <-ended }
}

// Heard records that the peer has said something.
func (p *Probe) Heard() { p.heard = true }

// Due reports whether a probe is to be posted. waits says whether something is expected of the peer.
func (p *Probe) Due(waits bool) bool {
	due := waits && p.waited && !p.heard && !p.under
	p.waited, p.heard = waits, false
	return due
}

// Post posts a probe. last is the ID of the request before. The queue must have room.
func (p *Probe) Post(pair rdma.QueuePair, op rdma.Op, last uint64) error {
	request := [1]rdma.SendRequest{{ID: probeID | last, Op: op, Flags: rdma.Signaled}}
	if _, err := pair.PostSend(request[:], nil); err != nil {
		return err
	}
	p.under = true
	return nil
}

// Done processes the ID of a request that is completed. It returns the one before if that is a probe's: it is completed, too.
func (p *Probe) Done(id uint64) uint64 {
	if id&probeID != 0 {
		p.under = false
	}
	return id &^ probeID
}

// Places returns how many places of the send queue probes have.
func (p *Probe) Places() uint64 {
	if p.under {
		return 1
	}
	return 0
}
