package member

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/status"
)

var _ pipeline.Source = (*Witness)(nil)

// Witness is the source of a member that votes and has no records: nothing ever comes.
type Witness struct {
	seat *Seat
	self uint32
}

// OpenWitness opens a witness.
func OpenWitness(e *pipeline.Env) (*Witness, error) {
	m, err := prepare(e, protocol.Durable)
	if err != nil {
		return nil, err
	}
	w := &Witness{self: m.self}
	w.seat, err = m.openDriver(e, nil)
	return w, err
}

// Seat returns the member's part in its group.
func (w *Witness) Seat() *Seat { return w.seat }

func (w *Witness) Begin() error { w.seat.begin(); return nil }

func (w *Witness) StopReceiving(bool) error { w.seat.running.Stop(); return nil }

func (w *Witness) Leave() bool { return w.seat.running.Stop() }

func (w *Witness) Check(time.Time) (waits, ends error) { return nil, w.seat.check() }

func (w *Witness) Announce() []any { return []any{"member", w.self} }

func (w *Witness) Observe(to *status.Flow) error {
	to.Group, to.Discarded = w.seat.observe(), nil // the sink gets nothing
	return nil
}

// Nothing comes, and nothing is kept.

func (w *Witness) Receive(pipeline.Output, bool, time.Time) (more bool) { return false }
func (w *Witness) Drained(uint64) bool                                  { return true }
func (w *Witness) FDs(dst []unix.PollFd, _ bool) []unix.PollFd          { return dst }
func (w *Witness) Deadline(now time.Time) time.Time                     { return now.Add(time.Second) }
func (w *Witness) Traffic() (packets, bytes uint64)                     { return 0, 0 }
