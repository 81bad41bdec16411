package message

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

const (
	// maxPending is the largest number of messages of a flow without an acknowledgement; a power of
	// two. At that number the source stops receiving.
	maxPending = 1 << 16
	// maxSkipped is the largest number of messages without a position and without an acknowledgement;
	// a power of two.
	maxSkipped = 1 << 12
)

// acknowledger acknowledges messages in their order of arrival, and assigns positions to the
// messages of a log. It belongs to the worker's thread.
type acknowledger struct {
	region   *umem.Region
	err      *pipeline.FirstError
	numbered bool                        // messages have positions
	owners   func(session uint16) uint64 // owner of a session, for a log that keeps it; else nil

	before       uint64 // position before this run's first message, or the first of this leadership
	epoch        uint32 // of a group's leader; 0: no group
	received     uint64 // messages of this run
	acknowledged uint64 // how many of them are acknowledged
	pending      [maxPending]pendingAck

	skipped                          [maxSkipped]skippedAck // ring of messages without a position
	skips                            uint64                 // messages that were skipped
	skipsDone                        uint64                 // how many of them are acknowledged
	times                            latency.Shared         // from receiving a message to acknowledging it
	receivedShown, acknowledgedShown counter.Counter        // copies for other goroutines
}

// pendingAck is a message without an acknowledgement.
type pendingAck struct {
	sequence uint64
	received int64 // nanoseconds since 1970
	session  uint16
}

// skippedAck is a message that the log already has. It is acknowledged after the messages before
// it.
type skippedAck struct {
	after    uint64 // messages with a position before it
	sequence uint64
	session  uint16
}

// room returns how many more messages may be numbered.
func (a *acknowledger) room() int {
	return min(maxPending-int(a.received-a.acknowledged), maxSkipped-int(a.skips-a.skipsDone))
}

// complete reports whether every message is acknowledged.
func (a *acknowledger) complete() bool {
	return a.acknowledged == a.received && a.skipsDone == a.skips
}

// skip records a message that gets no position. The caller has checked that there is room.
func (a *acknowledger) skip(session uint16, sequence uint64) {
	a.skipped[a.skips%maxSkipped] = skippedAck{a.received, sequence, session}
	a.skips++
}

// number records the messages and writes their positions into them in place.
func (a *acknowledger) number(messages []umem.Frame, now time.Time) {
	received := now.UnixNano()
	for _, f := range messages {
		header, side := a.region.At(f.Addr, protocol.HeaderLen), a.region.Side(f)
		a.pending[a.received%maxPending] = pendingAck{sequence: binary.BigEndian.Uint64(header[8:]), received: received, session: side.Queue}
		a.received++
		if a.numbered {
			owner := uint64(0)
			if a.owners != nil {
				owner = a.owners(side.Queue)
			}
			protocol.SetRecord(header, a.before+a.received, owner, a.epoch)
		}
		side.Stamp, side.Clock = uint64(received), umem.SystemClock
	}
}

// acknowledge acknowledges the first upTo messages of the run.
func (a *acknowledger) acknowledge(to *stream.Receiver, upTo uint64, now time.Time) {
	at := now.UnixNano()
	for a.acknowledged < upTo {
		p := &a.pending[a.acknowledged%maxPending]
		a.acknowledged++
		position := uint64(0)
		if a.numbered {
			position = a.before + a.acknowledged
		}
		to.Acknowledge(p.session, p.sequence, position)
		a.times.Record(uint64(max(0, at-p.received)))
	}
	a.acknowledgeSkipped(to)
}

// acknowledgeSkipped acknowledges the skipped messages that have no pending one before them.
func (a *acknowledger) acknowledgeSkipped(to *stream.Receiver) {
	for a.skipsDone < a.skips {
		s := &a.skipped[a.skipsDone%maxSkipped]
		if s.after > a.acknowledged {
			return
		}
		to.Acknowledge(s.session, s.sequence, a.before+a.acknowledged)
		a.skipsDone++
	}
}

// restart forgets all messages without an acknowledgement. The next one gets the position after
// before.
func (a *acknowledger) restart(before uint64, epoch uint32) {
	a.received, a.acknowledged, a.skips, a.skipsDone = 0, 0, 0, 0
	a.before, a.epoch = before, epoch
}

// publish copies the positions for other goroutines.
func (a *acknowledger) publish() {
	a.receivedShown.Set(a.received)
	a.acknowledgedShown.Set(a.acknowledged)
}

// settled returns a permit for peers that keeps one that only asks waiting until the log has acknowledged all that it
// has. So the answer does not count a message that may still be lost.
func (s *Source) settled(permit func(connect.Peer, protocol.Hello) error) func(connect.Peer, protocol.Hello) error {
	return func(p connect.Peer, h protocol.Hello) error {
		if permit != nil {
			if err := permit(p, h); err != nil {
				return err
			}
		}
		if h.Capabilities&protocol.CapabilityAsk == 0 {
			return nil
		}
		had, until := s.acks.receivedShown.Load(), time.Now().Add(maxSettle)
		for s.acks.acknowledgedShown.Load() < had {
			if time.Now().After(until) {
				return fmt.Errorf("%w: the log has messages that are not safe yet", protocol.Busy)
			}
			time.Sleep(settleInterval)
		}
		return nil
	}
}

// maxSettle is how long the answer to a question waits at most.
const maxSettle, settleInterval = 2 * time.Second, 500 * time.Microsecond
