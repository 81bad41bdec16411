package pipeline

import (
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/worker"
)

// Flow is an open flow of one kind: a Pipeline, a server or a replay. Poll to Deadline, Drain and
// CloseQueue run on the worker's thread. The others may be called from any goroutine.
type Flow interface {
	worker.Poller
	// Begin lets in what comes. A worker polls the flow already.
	Begin() error
	// Announce returns what the log says of the flow as it starts: names and values in turn.
	Announce() []any
	// Check is called once a second. It returns what the flow waits for, or what ends it.
	Check(now time.Time) (waits, ends error)
	// Trouble returns what keeps the flow from bringing what it has to its end, or nil.
	Trouble() error
	// Done reports whether all that the flow was to receive is received.
	Done() bool
	// Traffic is how much was received.
	Traffic() (packets, bytes uint64)
	// StopReceiving lets nothing more in.
	StopReceiving() error
	// Drain is called after StopReceiving until it returns true: what was received is then where
	// it belongs. rounds is how many rounds the worker has made.
	Drain(now time.Time, rounds uint64) (bool, error)
	// Diagnose adds what is known about a failure to its error. It may wait a moment.
	Diagnose(err error) error
	// Pending is how many operations the flow's disk has to do.
	Pending() int
	// CloseQueue closes what belongs to the worker's thread, within a moment. It is called again
	// while the error is an nvme.StuckError.
	CloseQueue() error
	// Observe adds the flow to a status.
	Observe(s *status.Flow) error
	// CountLost counts as lost what a flow that has ended did not bring to its end.
	CountLost(s *status.Flow)
}

// Shrinker is a Flow that can give memory back while it runs.
type Shrinker interface {
	// Shrink gives back what exceeds the quota, on the worker's thread, and reports whether there
	// is still more.
	Shrink(q Quota) (over bool)
}

// Run is an open flow with what flows of all kinds have.
type Run struct {
	Flow Flow
	Err  *FirstError // what ended it; nothing new is received then
	From int         // NUMA node of the receive end
	To   int         // NUMA node of the transmit end

	close Cleanup
}

// NewRun hands what env has opened over to a run. From and to are the NUMA nodes of its ends.
func NewRun(e *Env, f Flow, from, to int) *Run {
	return &Run{Flow: f, Err: e.Err, From: from, To: to, close: e.Undo.Release()}
}

// Close gives everything back. No worker may poll the flow any more.
func (r *Run) Close() error { return r.close.Run() }
