package pipeline

import (
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/trace"
	"github.com/unifiedd/unifiedd/flows/worker"
)

// Flow is an open flow of one kind: a Pipeline, a server or a replay. Poll to Deadline, Drain and
// CloseQueue run on the worker's thread. The others may be called from any goroutine.
type Flow interface {
	worker.Poller
	// Begin starts receiving. A worker polls the flow already.
	Begin() error
	// Announce returns attributes for the log entry of the flow's start: names and values in turn.
	Announce() []any
	// Check is called once a second. It returns what the flow waits for, or what ends it.
	Check(now time.Time) (waits, ends error)
	// Trouble returns what keeps the flow from draining, or nil.
	Trouble() error
	// Done reports whether the flow has received everything that it was to receive. When that becomes so, Poll tells Env.Err.
	Done() bool
	// Traffic is how much was received. It neither allocates nor locks: the recorder calls it each round.
	Traffic() (packets, bytes uint64)
	// StopReceiving stops receiving.
	StopReceiving() error
	// Drain is called after StopReceiving until it returns true. Everything received is then processed.
	// rounds is how many rounds the worker has made.
	Drain(now time.Time, rounds uint64) (bool, error)
	// Diagnose adds what is known about a failure to its error. It may wait a moment.
	Diagnose(err error) error
	// Pending is how many operations the flow's disk has not completed.
	Pending() int
	// CloseQueue closes what belongs to the worker's thread. It takes only a moment. The caller calls it
	// again while the error is an nvme.StuckError.
	CloseQueue() error
	// Observe adds the flow to a status.
	Observe(s *status.Flow) error
	// CountLost counts as lost the packets that a flow that has ended did not process.
	CountLost(s *status.Flow)
}

// Run is an open flow, with the parts that flows of all kinds have.
type Run struct {
	Flow   Flow
	Poller worker.Poller // what the worker polls: the flow, and the recorder of its rounds
	Err    *FirstError   // what ended it; nothing new is received then
	From   int           // NUMA node of the receive end
	To     int           // NUMA node of the transmit end

	close Cleanup
}

// NewRun makes a run, which takes over everything that e has opened. from and to are the NUMA nodes of its
// ends.
func NewRun(e *Env, f Flow, from, to int) *Run {
	r := &Run{Flow: f, Poller: f, Err: e.Err, From: from, To: to, close: e.Undo.Release()}
	if _, own := f.(*Pipeline); !own && e.Trace != nil { // a Pipeline records its rounds itself
		r.Poller = &recorded{f, e.Trace, e.Err}
	}
	return r
}

// recorded polls a flow and records its rounds. The worker's thread calls it.
type recorded struct {
	Flow
	trace *trace.Recorder
	err   *FirstError
}

func (r *recorded) Poll(now time.Time) (more bool) {
	r.trace.Begin(now)
	r.trace.Step(trace.Serve)
	more = r.Flow.Poll(now)
	packets, bytes := r.Flow.Traffic()
	flags := uint32(0)
	if r.err.Get() != nil {
		flags = trace.Failing
	}
	r.trace.End(packets, bytes, 0, flags)
	return more
}

// Close releases everything. No worker may still poll the flow.
func (r *Run) Close() error { return r.close.Run() }
