package pipeline

import (
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/worker"
)

// Source is the receive end of a flow. It may have the parts that FullSource lists, too. Receive, FDs and Drained
// run on the worker's thread and do not block. Any goroutine may call the others.
type Source interface {
	// Receive passes what was left in the source's batches to the sink. If open, it then receives
	// a burst from each queue and passes that. It reports whether more is waiting. It is called
	// once a round, and calls the sink once or twice per batch, never per frame.
	Receive(sink Output, open bool, now time.Time) (more bool)
	// FDs appends the descriptors that become readable when there is something to receive. While the sink is
	// blocked, packets that already wait must not wake the worker.
	FDs(dst []unix.PollFd, blocked bool) []unix.PollFd
	// Drained reports, after StopReceiving, whether nothing more comes. rounds is how many rounds the worker
	// has made: the source must have received nothing in a whole round.
	Drained(rounds uint64) bool

	// Begin starts receiving. A worker polls the flow already.
	Begin() error
	// StopReceiving stops receiving. failed means that the flow ends with an error.
	StopReceiving(failed bool) error
	// Traffic is how much was received. It neither allocates nor locks: it is called each round.
	Traffic() (packets, bytes uint64)
	// Observe adds the source to a status, after the sink.
	Observe(s *status.Flow) error
}

// Sink is the transmit end of a flow. It may have the parts that FullSink lists, too.
type Sink interface {
	// Write takes whole packets from the batch. It returns false if it could not take all of them
	// now; these stay in the batch, and the sink is blocked for the rest of the round. It runs on the worker's
	// thread and does not block.
	Write(b *Batch, now time.Time) (all bool)
	// Observe adds the sink to a status, before the source: what is written was received before.
	Observe(s *status.Flow) error
}

// Output is a sink as a source sees it.
type Output interface {
	Write(b *Batch, now time.Time) (all bool)
	// Block makes the sink blocked, as if Write had returned false. A source calls it if it cannot receive
	// since the flow's frames are in use.
	Block()
}

// These are the parts that sources and sinks may have.
type (
	// Holder has frames: how many of the region's frames a source has passed on and not got back, or a sink has without
	// those that the source counts.
	Holder interface{ InFlight() int }
	// Checker is called once a second, by any goroutine. It returns what the flow waits for, or what ends it.
	Checker interface {
		Check(now time.Time) (waits, ends error)
	}
	// Announcer has attributes for the log entry of the flow's start: names and values in turn.
	Announcer interface{ Announce() []any }
	// Shrinker gives back memory that exceeds the quota, on the worker's thread, and reports whether there is still more.
	Shrinker interface{ Shrink(q Quota) (over bool) }
)

// These are the parts that sources may have. The worker's thread calls Supply, Kick, Deadline, Leave and Acknowledge.
type (
	// Supplier gives free frames back to a device.
	Supplier interface{ Supply() }
	// Kicker wakes its device if the device asked for it, and sends what is queued.
	Kicker interface{ Kick(now time.Time) }
	// Timer says when to call Receive again though no descriptor is readable.
	Timer interface{ Deadline(now time.Time) time.Time }
	// Leaver tells peers that the flow ends. It is called after the sink has drained, until it returns true.
	Leaver interface{ Leave() bool }
	// Acknowledger acknowledges the messages that have reached the promised durability.
	Acknowledger interface{ Acknowledge(now time.Time) }
	// Finite reports whether the source has received everything that it was to receive.
	Finite interface{ Done() bool }
	// Accepter says how many packets were passed to the sink, or wait for that, if these are not all.
	Accepter interface{ Accepted() uint64 }
	// LossCounter counts as lost the packets that a flow that has ended did not receive.
	LossCounter interface{ CountLost(s *status.Flow) }
	// ExtentHolder takes extents of the flow's quota. The sink has the rest.
	ExtentHolder interface{ Extents() int }
)

// Device is a Sink that sends through a device, or to a program. The worker's thread calls it.
type Device interface {
	// Reap takes back what the device is done with, and begins a round: the sink is not blocked.
	Reap(now time.Time)
	// Kick sends what is queued to the device and publishes the sink's progress.
	Kick()
	// FDs appends the descriptors that become readable when Reap has something to do.
	FDs(dst []unix.PollFd) []unix.PollFd
	// Deadline is when to poll the flow again though no descriptor is readable.
	Deadline(now time.Time) time.Time
	// Block makes the sink blocked: see Output.
	Block()
	// Blocked reports whether the sink could not take everything in this round.
	Blocked() bool
}

// Storage is a Sink that has a disk.
type Storage interface {
	// Full reports whether the sink takes nothing more, which ends the flow.
	Full() bool
	// Trouble returns what keeps the sink from taking frames, or nil.
	Trouble() error
	// Diagnose adds what is known about the failure to the error that ended the flow. It may wait
	// a moment.
	Diagnose(err error) error
	// Pending is how many operations the disk has not completed.
	Pending() int
}

// These are further parts that sinks may have. The worker's thread calls Flush, Drain, Stopping and Close.
type (
	// Flusher sends a batch that has waited long enough. If open is false, the source receives nothing new in this
	// round, so Flush does not wait.
	Flusher interface {
		Flush(open bool, now time.Time)
	}
	// Drainer is called after the source has drained, until it returns true. The device has then completed everything, or
	// the sink has given up the rest.
	Drainer interface {
		Drain(now time.Time) (done bool, err error)
	}
	// Stopper would wait for somebody who is not there: the flow stops, and what the source still has goes now, or is lost.
	Stopper interface{ Stopping() }
	// Beginner is called before Begin of the source.
	Beginner interface{ Begin() error }
	// FailureCounter counts as lost the packets that a flow that has ended did not write, and observes what has changed
	// since Observe until the flow was closed. accepted is what the source accepted.
	FailureCounter interface {
		CountFailed(s *status.Flow, accepted uint64)
	}
)

// FullSource is a source with all parts. Those that it does not have do nothing.
type FullSource struct {
	Source
	Holder
	Supplier
	Kicker
	Timer
	Leaver
	Finite
	Accepter
	Checker
	Announcer
	LossCounter
	Shrinker
	ExtentHolder
}

// FullSink is a sink with all parts. Those that it does not have do nothing. The worker's thread calls Close, which
// closes what belongs to that thread and takes only a moment; again while its error is an nvme.StuckError.
type FullSink struct {
	Sink
	Device
	Holder
	Flusher
	Drainer
	Stopper
	Beginner
	Storage
	Checker
	Announcer
	FailureCounter
	Shrinker
	io.Closer
}

// or returns v as a T if it is one, else no.
func or[T any](v any, no T) T {
	if t, ok := v.(T); ok {
		return t
	}
	return no
}

// completeSource finds the parts of a source.
func completeSource(s Source) FullSource {
	no := noSource{of: s}
	return FullSource{
		Source: s, Holder: or[Holder](s, no), Supplier: or[Supplier](s, no), Kicker: or[Kicker](s, no), Timer: or[Timer](s, no),
		Leaver: or[Leaver](s, no), Finite: or[Finite](s, no), Accepter: or[Accepter](s, no), Checker: or[Checker](s, no),
		Announcer: or[Announcer](s, no), LossCounter: or[LossCounter](s, no), Shrinker: or[Shrinker](s, no), ExtentHolder: or[ExtentHolder](s, no),
	}
}

// Complete finds the parts of a sink.
func Complete(s Sink) FullSink {
	no := noSink{}
	return FullSink{
		Sink: s, Device: or[Device](s, no), Holder: or[Holder](s, no), Flusher: or[Flusher](s, no),
		Drainer: or[Drainer](s, no), Stopper: or[Stopper](s, no), Beginner: or[Beginner](s, no), Storage: or[Storage](s, no), Checker: or[Checker](s, no),
		Announcer: or[Announcer](s, no), FailureCounter: or[FailureCounter](s, no), Shrinker: or[Shrinker](s, no), Closer: or[io.Closer](s, no),
	}
}

// no is the parts that sources and sinks do not have.
type no struct{}

func (no) InFlight() int                       { return 0 }
func (no) Check(time.Time) (waits, ends error) { return nil, nil }
func (no) Announce() []any                     { return nil }
func (no) Shrink(Quota) (over bool)            { return false }
func (no) Deadline(now time.Time) time.Time    { return now.Add(worker.MaxWait) }

// noSource is the parts that a source does not have.
type noSource struct {
	no
	of Source
}

func (noSource) Supply()                {}
func (noSource) Kick(time.Time)         {}
func (noSource) Leave() bool            { return true }
func (noSource) Done() bool             { return false }
func (noSource) CountLost(*status.Flow) {}
func (noSource) Extents() int           { return 0 }

// Accepted returns everything that was received.
func (n noSource) Accepted() uint64 {
	packets, _ := n.of.Traffic()
	return packets
}

// noSink is the parts that a sink does not have.
type noSink struct{ no }

func (noSink) Reap(time.Time)                      {}
func (noSink) Kick()                               {}
func (noSink) FDs(dst []unix.PollFd) []unix.PollFd { return dst }
func (noSink) Block()                              {}
func (noSink) Blocked() bool                       { return false }
func (noSink) Flush(bool, time.Time)               {}
func (noSink) Drain(time.Time) (bool, error)       { return true, nil }
func (noSink) Stopping()                           {}
func (noSink) Begin() error                        { return nil }
func (noSink) Full() bool                          { return false }
func (noSink) Trouble() error                      { return nil }
func (noSink) Diagnose(err error) error            { return err }
func (noSink) Pending() int                        { return 0 }
func (noSink) CountFailed(*status.Flow, uint64)    {}
func (noSink) Close() error                        { return nil }
