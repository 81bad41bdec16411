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

var _ Flow = (*Pipeline)(nil)

// Pipeline moves packets or messages from a source to a sink. Flow says which methods run on the
// worker's thread; any goroutine may call the others.
type Pipeline struct {
	source     FullSource
	sink       FullSink
	acks       Acknowledger // the source, if its peers wait for acknowledgements; else nil
	watermarks watermarks
	err        *FirstError
	book       *umem.Book
	trace      *trace.Recorder // nil: nothing is recorded
	told       bool            // that it is done
}

// New connects a source to a sink.
func New(e *Env, source Source, sink Sink) *Pipeline {
	p := &Pipeline{source: completeSource(source), sink: Complete(sink), err: e.Err, book: e.Book, trace: e.Trace}
	p.watermarks.limits = e.Flow.Watermarks
	p.acks, _ = source.(Acknowledger)
	return p
}

// Source returns the receive end.
func (p *Pipeline) Source() Source { return p.source.Source }

// Sink returns the transmit end.
func (p *Pipeline) Sink() Sink { return p.sink.Sink }

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
		more = p.source.Receive(&p.sink, open, now)
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

func (p *Pipeline) FDs(dst []unix.PollFd) []unix.PollFd {
	dst = p.sink.FDs(dst)
	if p.watermarks.closed {
		return dst // packets that already wait must not wake the worker
	}
	return p.source.FDs(dst, p.sink.Blocked())
}

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
	p.sink.Stopping()
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
	p.sink.CountFailed(s, p.source.Accepted())
}

// Shrink gives back what exceeds the flow's quota.
func (p *Pipeline) Shrink(q Quota) (over bool) {
	frames := p.source.Shrink(q)
	q.Extents -= p.source.Extents()
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
