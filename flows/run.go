package flows

import (
	"log/slog"
	"time"

	"github.com/unifiedd/unifiedd/flows/worker"
)

// run is a flow of any kind that has been opened, as those see it who start it, watch it
// and end it. poll and finish run on its worker's thread, all else beside that.
type run interface {
	worker.Poller
	// note keeps the first error, after which nothing new is taken, and fault returns it.
	note(err error)
	fault() error
	// begin lets in what comes. A worker polls the flow already.
	begin() error
	// announce is what the log says of the flow as it starts.
	announce() []any
	// check is called once a second. It returns what the flow waits for, and what ends it.
	check(now time.Time) (waits, ends error)
	// trouble is what keeps the flow from bringing what it has to where it belongs.
	trouble() error
	// done reports whether all that the flow was to take is taken.
	done() bool
	// traffic is how much came in so far.
	traffic() (packets, bytes uint64)
	// halt lets nothing more in.
	halt() error
	// finish brings what came in to where it belongs, after halt. It is called again and
	// again until it says that all of it is there; rounds is how many the worker has made.
	finish(now time.Time, rounds uint64) (bool, error)
	// diagnose adds to why the flow failed what is known of it. It may wait a moment.
	diagnose(err error) error
	// pending is how many operations its disk has to do.
	pending() int
	// shut closes what belongs to the worker's thread, on that, in a moment. It is called
	// again while the error is an nvme.StuckError.
	shut() error
	// nodes are the NUMA nodes of both ends.
	nodes() (from, to int)
	// observe adds to a status what the flow knows of itself.
	observe(s *FlowStatus) error
	// abandon counts as lost what a flow that has ended did not bring to its end.
	abandon(s *FlowStatus)
	// close gives everything back. No worker polls the flow any more.
	close() error
}

// common is what runs of all kinds have.
type common struct {
	log     *slog.Logger
	started time.Time
	ends    struct{ from, to int } // their NUMA nodes
	undo    cleanup                // everything, while no worker polls it
}

func (c *common) nodes() (from, to int) { return c.ends.from, c.ends.to }

func (c *common) close() error { return c.undo.run() }
