package pipeline

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/trace"
	"github.com/unifiedd/unifiedd/umem"
)

// Burst is the most frames that one call of a device moves.
const Burst = 64

// Source is the receive end of a flow. Receive to Deadline run on the worker's thread and do not
// block. The others may be called from any goroutine.
type Source interface {
	// Receive passes what was left in the source's batches to the sink. If open, it then receives
	// a burst from each queue and passes that. It reports whether more is waiting. It is called
	// once a round, and calls the sink once or twice per batch, never per frame.
	Receive(sink Sink, open bool, now time.Time) (more bool)
	// Supply gives free frames back to the device.
	Supply()
	// Kick wakes the device if the device asked for it, and sends what is queued.
	Kick(now time.Time)
	// InFlight is how many of the region's frames the source has passed on and not got back.
	InFlight() int
	// Drained reports, after StopReceiving, whether nothing more comes. rounds is how many rounds the worker
	// has made: the source must have received nothing in a whole round.
	Drained(rounds uint64) bool
	// Leave is called after the sink has drained, until it returns true. It tells peers that the flow ends.
	Leave() bool
	// FDs appends the descriptors that become readable when there is something to receive. While the sink is
	// blocked, packets that already wait must not wake the worker.
	FDs(dst []unix.PollFd, blocked bool) []unix.PollFd
	// Deadline is when to call Receive again though no descriptor is readable.
	Deadline(now time.Time) time.Time

	// Begin starts receiving. A worker polls the flow already.
	Begin() error
	// StopReceiving stops receiving. failed means that the flow ends with an error.
	StopReceiving(failed bool) error
	// Done reports whether the source has received everything that it was to receive.
	Done() bool
	// Traffic is how much was received. It neither allocates nor locks: it is called each round.
	Traffic() (packets, bytes uint64)
	// Accepted is how many packets were passed to the sink, or wait for that.
	Accepted() uint64
	// Check is called once a second. It returns what the flow waits for, or what ends it.
	Check(now time.Time) (waits, ends error)
	// Announce returns attributes for the log entry of the flow's start.
	Announce() []any
	// Observe adds the source to a status, after the sink.
	Observe(s *status.Flow) error
	// CountLost counts as lost the packets that a flow that has ended did not receive.
	CountLost(s *status.Flow)
	// Shrink gives back frames that exceed the quota, and reports whether there are still more. It runs on
	// the worker's thread.
	Shrink(q Quota) (over bool)
}

// Acknowledger is a Source whose peers wait for acknowledgements.
type Acknowledger interface {
	// Acknowledge acknowledges the messages that have reached the promised durability. It runs on the
	// worker's thread.
	Acknowledge(now time.Time)
}

// Stopper is a Sink that would wait for somebody who is not there.
type Stopper interface {
	// Stopping says that the flow stops: what the source still has goes now, or is lost. It runs on the worker's thread.
	Stopping()
}

// Sink is the transmit end of a flow. Reap to Deadline run on the worker's thread and do not block.
// The others may be called from any goroutine.
type Sink interface {
	// Reap takes back what the device is done with, and begins a round: the sink is not blocked.
	Reap(now time.Time)
	// Write takes whole packets from the batch. It returns false if it could not take all of them
	// now; these stay in the batch, and the sink is blocked for the rest of the round.
	Write(b *Batch, now time.Time) (all bool)
	// Block makes the sink blocked, as if Write had returned false. A source calls it if it cannot receive
	// since the flow's frames are in use.
	Block()
	// Blocked reports whether the sink could not take everything in this round.
	Blocked() bool
	// Flush sends a batch that has waited long enough. If open is false, the source receives nothing new in
	// this round, so Flush does not wait.
	Flush(open bool, now time.Time)
	// Kick sends what is queued to the device and publishes the sink's progress.
	Kick()
	// InFlight is how many frames the sink has, without those that the source counts.
	InFlight() int
	// Drain is called after the source has drained, until it returns true. The device has then completed
	// everything, or the sink has given up the rest.
	Drain(now time.Time) (done bool, err error)
	// FDs appends the descriptors that become readable when Reap has something to do.
	FDs(dst []unix.PollFd) []unix.PollFd
	// Deadline is when to poll the flow again though no descriptor is readable.
	Deadline(now time.Time) time.Time

	// Begin is called before Begin of the source.
	Begin() error
	// Full reports whether the sink takes nothing more, which ends the flow.
	Full() bool
	// Check is called once a second. It returns what the flow waits for, or what ends it.
	Check(now time.Time) (waits, ends error)
	// Trouble returns what keeps the sink from taking frames, or nil.
	Trouble() error
	// Diagnose adds what is known about the failure to the error that ended the flow. It may wait
	// a moment.
	Diagnose(err error) error
	// Pending is how many operations the sink's disk has not completed.
	Pending() int
	// Close closes what belongs to the worker's thread, on that thread. It takes only a moment. The caller
	// calls it again while the error is an nvme.StuckError.
	Close() error
	// Announce returns attributes for the log entry of the flow's start.
	Announce() []any
	// Observe adds the sink to a status, before the source: what is written was received before.
	Observe(s *status.Flow) error
	// CountLost counts as lost the packets that a flow that has ended did not write, and observes
	// what has changed since Observe until the flow was closed. accepted is Source.Accepted.
	CountLost(s *status.Flow, accepted uint64)
	// Shrink gives back memory that exceeds the quota, as Source.Shrink does.
	Shrink(q Quota) (over bool)
}

// Batch is frames of one queue on their way from a source to a sink. The source owns it; while Write runs,
// the sink owns it.
type Batch struct {
	ID       uint32       // interface number in a capture file
	Frames   []umem.Frame // buffer; the first Len are in use
	Len      int
	Prepared int // of those, how many the sink has prepared for sending: see peers.Sink
}

// Held returns the frames in use. The last packet may be incomplete.
func (b *Batch) Held() []umem.Frame { return b.Frames[:b.Len] }

// Drop removes the first n frames, which the sink has taken.
func (b *Batch) Drop(n int) {
	if n > 0 {
		b.Len = copy(b.Frames, b.Frames[n:b.Len])
	}
}

// Pipeline moves packets or messages from a source to a sink. Flow and Shrinker say which methods run on the
// worker's thread; any goroutine may call the others.
type Pipeline struct {
	source     Source
	sink       Sink
	acks       Acknowledger // the source, if its peers wait for acknowledgements; else nil
	stops      Stopper      // the sink, if it must know that the flow stops; else nil
	watermarks watermarks
	err        *FirstError
	book       *umem.Book
	trace      *trace.Recorder // nil: nothing is recorded
	told       bool            // that it is done
}

// New connects a source to a sink.
func New(e *Env, source Source, sink Sink) *Pipeline {
	p := &Pipeline{source: source, sink: sink, err: e.Err, book: e.Book, trace: e.Trace}
	p.watermarks.limits = e.Flow.Watermarks
	p.acks, _ = source.(Acknowledger)
	p.stops, _ = sink.(Stopper)
	return p
}

// Source returns the receive end.
func (p *Pipeline) Source() Source { return p.source }

// Sink returns the transmit end.
func (p *Pipeline) Sink() Sink { return p.sink }

// Record exchanges the recorder, which may be nil. The worker's thread calls it, between two rounds.
func (p *Pipeline) Record(r *trace.Recorder) { p.trace = r }

// Poll is one round. After an error nothing new is received, but what is in flight is taken back.
func (p *Pipeline) Poll(now time.Time) (more bool) {
	p.trace.Begin(now)
	p.sink.Reap(now)
	flags := trace.Failing
	if p.err.Get() == nil {
		open := p.watermarks.open(p.source.InFlight()+p.sink.InFlight(), now)
		p.trace.Step(trace.Receive)
		more = p.source.Receive(p.sink, open, now)
		p.trace.Step(trace.Flush)
		p.sink.Flush(open, now)
		if p.acks != nil {
			p.trace.Step(trace.Acknowledge)
			p.acks.Acknowledge(now)
		}
		flags = p.flags(open)
	}
	p.trace.Step(trace.Supply)
	p.source.Supply()
	p.trace.Step(trace.Kick)
	p.sink.Kick()
	p.source.Kick(now)
	p.book.Publish()
	if !p.told && p.Done() {
		p.told = true
		p.err.Tell()
	}
	if p.trace != nil {
		packets, bytes := p.source.Traffic()
		p.trace.End(packets, bytes, int(p.watermarks.inFlight.Load()), flags)
	}
	return more
}

// flags returns how a round ends, for the recorder.
func (p *Pipeline) flags(open bool) (flags uint32) {
	if !open {
		flags = trace.Paused
	}
	if p.trace != nil && p.sink.Blocked() {
		flags |= trace.Blocked
	}
	return flags
}

// FDs implements worker.Poller.
func (p *Pipeline) FDs(dst []unix.PollFd) []unix.PollFd {
	dst = p.sink.FDs(dst)
	if p.watermarks.closed {
		return dst // packets that already wait must not wake the worker
	}
	return p.source.FDs(dst, p.sink.Blocked())
}

// Deadline implements worker.Poller.
func (p *Pipeline) Deadline(now time.Time) time.Time {
	return Earlier(p.source.Deadline(now), p.sink.Deadline(now))
}

// Begin starts the sink, then the source.
func (p *Pipeline) Begin() error {
	if err := p.sink.Begin(); err != nil {
		return err
	}
	return p.source.Begin()
}

// Announce returns attributes for the log entry of the flow's start.
func (p *Pipeline) Announce() []any { return append(p.source.Announce(), p.sink.Announce()...) }

// Check returns what the flow waits for, and what ends it. The source's answer comes before the sink's.
func (p *Pipeline) Check(now time.Time) (waits, ends error) {
	waits, ends = p.source.Check(now)
	sinkWaits, sinkEnds := p.sink.Check(now)
	switch {
	case ends != nil || waits != nil:
		return waits, ends
	default:
		return sinkWaits, sinkEnds
	}
}

// Trouble returns what keeps the sink from taking frames, or nil.
func (p *Pipeline) Trouble() error { return p.sink.Trouble() }

// Done reports whether everything that was to be received is received, or the sink takes nothing more.
func (p *Pipeline) Done() bool { return p.source.Done() || p.sink.Full() }

// Traffic is how much was received.
func (p *Pipeline) Traffic() (packets, bytes uint64) { return p.source.Traffic() }

// StopReceiving stops the source.
func (p *Pipeline) StopReceiving() error { return p.source.StopReceiving(p.err.Get() != nil) }

// Drain empties the source, then the sink, and lets the source leave its peers.
func (p *Pipeline) Drain(now time.Time, rounds uint64) (bool, error) {
	if p.stops != nil {
		p.stops.Stopping()
	}
	if !p.source.Drained(rounds) {
		return false, nil
	}
	if done, err := p.sink.Drain(now); !done || err != nil {
		return false, err
	}
	return p.source.Leave(), nil
}

// Diagnose adds what is known about the failure to the error that ended the flow.
func (p *Pipeline) Diagnose(err error) error { return p.sink.Diagnose(err) }

// Pending is how many operations the disk has not completed.
func (p *Pipeline) Pending() int { return p.sink.Pending() }

// CloseQueue closes what belongs to the worker's thread.
func (p *Pipeline) CloseQueue() error { return p.sink.Close() }

// Observe reads the sink's counters first, so that a status never has more packets written than received.
func (p *Pipeline) Observe(s *status.Flow) error {
	err := p.sink.Observe(s)
	p.watermarks.observe(s)
	return errors.Join(err, p.source.Observe(s))
}

// CountLost counts the packets that were not received, and those that were not written.
func (p *Pipeline) CountLost(s *status.Flow) {
	p.source.CountLost(s)
	p.sink.CountLost(s, p.source.Accepted())
}

// ExtentHolder is a source that takes extents of the flow's quota. The sink has the rest.
type ExtentHolder interface{ Extents() int }

// Shrink gives back what exceeds the flow's quota.
func (p *Pipeline) Shrink(q Quota) (over bool) {
	frames := p.source.Shrink(q)
	if h, ok := p.source.(ExtentHolder); ok {
		q.Extents -= h.Extents()
	}
	extents := p.sink.Shrink(q)
	return frames || extents
}

// Earlier returns the earlier of two times.
func Earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
