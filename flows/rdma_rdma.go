package flows

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/umem"
)

// rdmaRDMA is a relay: it takes messages of RDMA clients to RDMA peers, sent from where
// they landed, and acknowledges each once as many peers have it as is configured.
//
//	RDMA Recv → stages → RDMA SEND to each peer … acknowledged → RDMA Supply
//	                                                └─ any, most, all   → acknowledgement
//
// It belongs to its worker's thread; the counters may be read from anywhere.
type rdmaRDMA struct {
	common
	faults
	inbox
	outbox
	positions
	crowd
	stages
	level
	sums   *reduction // nil: messages are sent on as they came
	one    [1]umem.Frame
	book   *umem.Book
	tokens [burst]uint64
	passed uint64 // messages that may be acknowledged
}

// poll is one round.
func (r *rdmaRDMA) Poll(now time.Time) (more bool) {
	r.stuck = false
	r.note(r.fan.Poll(now))
	r.free(r.spare)
	if r.failed.Load() == nil {
		more = r.forward(now)
	}
	r.supply()
	r.note(r.fan.Kick())
	r.note(r.receiver.Poll(now))
	r.show()
	r.book.Publish()
	return more
}

// forward takes messages, sends them on, or their sums, and acknowledges those that arrived.
func (r *rdmaRDMA) forward(now time.Time) (more bool) {
	if r.sums == nil {
		more = r.receive(r.below(r.frames(r.away()-r.count), now), now)
		r.acknowledge(r.receiver, r.acknowledged(), now)
		return more
	}
	more = r.reduce(now)
	r.acknowledgeSums(r.acknowledged(), now)
	return more
}

// receive takes messages and sends them on, and reports whether more wait. Peers have no
// more frames than are not needed for clients to send.
func (r *rdmaRDMA) receive(open bool, now time.Time) bool {
	if !r.pass() || !open {
		return false
	}
	most := min(r.room(), r.total-r.window-r.away())
	if !r.took(most > 0) {
		return false
	}
	first, more := r.take(most)
	came := r.buf[first:r.count]
	r.number(came, now)
	for i := range came { // peers get payloads, with headers of their own
		came[i].Addr += protocol.HeaderLen
		came[i].Len -= protocol.HeaderLen
	}
	r.apply(r.region, came, uint64(now.UnixNano()))
	return r.pass() && more
}

// pass sends messages on. What peers can not take now is held.
func (r *rdmaRDMA) pass() bool {
	done := 0
	for ; done < r.count; done++ {
		f := r.buf[done]
		origin := protocol.FirstOrigin(r.region.At(f.Addr-protocol.HeaderLen, protocol.HeaderLen))
		if !r.fan.Relay(r.buf[done:done+1], 0, r.region.Side(f).Stamp, origin) {
			break
		}
	}
	r.drop(done)
	return r.took(r.count == 0)
}

// acknowledged is how many messages enough peers have.
func (r *rdmaRDMA) acknowledged() uint64 {
	for {
		n := r.fan.Acknowledged(r.tokens[:])
		r.passed += uint64(n)
		if n < len(r.tokens) {
			return r.passed
		}
	}
}

func (r *rdmaRDMA) FDs(dst []unix.PollFd) []unix.PollFd {
	dst = r.outbox.FDs(dst)
	if r.closed {
		return dst // messages that wait are no news
	}
	return r.inbox.FDs(dst)
}

func (r *rdmaRDMA) begin() error {
	r.connect()
	return r.inbox.begin()
}

func (r *rdmaRDMA) announce() []any { return append(r.inbox.announce(), r.outbox.announce()...) }

func (r *rdmaRDMA) check(time.Time) (waits, ends error) {
	if waits, ends = r.inbox.check(); waits != nil || ends != nil {
		return waits, ends
	}
	return r.outbox.check()
}

// finish has peers take what came, and it acknowledged, and then clients told that the
// relay ends. What peers do not acknowledge, clients still have.
func (r *rdmaRDMA) finish(now time.Time, rounds uint64) (bool, error) {
	if !r.quiet(rounds) || !r.settled(now) || r.fan.Idle() && !r.receiver.Idle() {
		return false, nil
	}
	clients, peers := r.serving.leave(), r.dials.leave()
	return clients && peers, nil
}

// halt has clients of a relay that failed told at once.
func (r *rdmaRDMA) halt() error {
	if r.failed.Load() != nil {
		r.serving.leave()
	}
	return r.inbox.halt()
}

// observe reads the counters, those of what was sent first: it came before.
func (r *rdmaRDMA) observe(s *FlowStatus) error {
	r.outbox.observe(s)
	r.stages.observe(s)
	if r.sums != nil {
		stage := StageStatus(r.sums.sum.Stats())
		if n := r.sums.duplicates.Load(); n > 0 {
			stage.Left["duplicate"] = n
		}
		s.Stages = append(s.Stages, stage)
	}
	s.Stalls, s.Latency = r.stalls.Load(), r.spent.Summary()
	r.inbox.observe(s)
	r.level.observe(s)
	return nil
}

// abandon counts as lost what came and is not acknowledged. Clients have it still.
func (r *rdmaRDMA) abandon(s *FlowStatus) {
	s.Dropped["not_acknowledged"] = r.shown[0].Load() - r.shown[1].Load()
}
