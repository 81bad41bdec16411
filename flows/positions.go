package flows

import (
	"encoding/binary"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/umem"
)

// unacknowledged is the most messages of a flow that are not acknowledged yet; a power of
// two. Once there are as many, no more are taken.
const unacknowledged = 1 << 16

// positions has messages acknowledged in the order in which they came, and gives each
// message of a log its position. It belongs to the worker's thread.
type positions struct {
	region   *umem.Region
	log      bool                        // messages have positions
	owners   func(session uint16) uint64 // of the sessions, by number: where the log has their names; nil: it has not
	before   uint64                      // position in front of this run's first message
	given    uint64                      // messages of this run that came
	answered uint64                      // of those, how many are acknowledged, the first ones
	open     [unacknowledged]origins
	skipped  [mostSkipped]skip  // ring of messages that take no position
	skips    [2]uint64          // of those: told of, and noted
	spent    latency.Shared     // from when a message was taken until it is acknowledged
	shown    [2]counter.Counter // given and answered, for other threads
}

// origins is whose a message was.
type origins struct {
	sequence uint64
	taken    int64 // nanoseconds since 1970
	session  uint16
}

// room is how many more messages may be numbered.
func (p *positions) room() int {
	return min(unacknowledged-int(p.given-p.answered), mostSkipped-int(p.skips[1]-p.skips[0]))
}

// mostSkipped is the most messages without a position that are not acknowledged yet; a power of two.
const mostSkipped = 1 << 12

// skip is a message that the log has already. It is acknowledged once everything in front of it is.
type skip struct {
	after    uint64
	sequence uint64
	session  uint16
}

// skip notes a message that takes no position. There is room.
func (p *positions) skip(session uint16, sequence uint64) {
	p.skipped[p.skips[1]%mostSkipped] = skip{p.given, sequence, session}
	p.skips[1]++
}

// acknowledgeSkipped acknowledges messages without a position that have nothing in front of them any more.
func (p *positions) acknowledgeSkipped(to *stream.Receiver) {
	for p.skips[0] < p.skips[1] {
		s := &p.skipped[p.skips[0]%mostSkipped]
		if s.after > p.answered {
			return
		}
		to.Acknowledge(s.session, s.sequence, p.before+p.answered)
		p.skips[0]++
	}
}

// show publishes how far it has come.
func (p *positions) show() {
	for i, n := range [2]uint64{p.given, p.answered} {
		p.shown[i].Set(n)
	}
}

// number notes whose messages are, and writes their positions into them, where they landed.
func (p *positions) number(messages []umem.Frame, now time.Time) {
	taken := now.UnixNano()
	for _, f := range messages {
		header, side := p.region.At(f.Addr, protocol.HeaderLen), p.region.Side(f)
		p.open[p.given%unacknowledged] = origins{sequence: binary.BigEndian.Uint64(header[8:]), taken: taken, session: side.Queue}
		p.given++
		if p.log {
			owner := uint64(0)
			if p.owners != nil {
				owner = p.owners(side.Queue)
			}
			protocol.SetRecord(header, p.before+p.given, owner)
		}
		side.Stamp, side.Clock = uint64(taken), umem.SystemClock
	}
}

// acknowledge acknowledges the first so many messages of the run.
func (p *positions) acknowledge(to *stream.Receiver, upTo uint64, now time.Time) {
	at := now.UnixNano()
	for p.answered < upTo {
		o := &p.open[p.answered%unacknowledged]
		p.answered++
		position := uint64(0)
		if p.log {
			position = p.before + p.answered
		}
		to.Acknowledge(o.session, o.sequence, position)
		p.spent.Record(uint64(max(0, at-o.taken)))
	}
	p.acknowledgeSkipped(to)
}
