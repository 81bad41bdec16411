package program

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/unifiedd/unifiedd/flows/attach"
	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/flows/layout"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/umem"
)

// landing is the offset of a copied message in its frame: there is room for a block header before it.
const landing = pcapng.PacketHeaderLen

// Config is what a source needs in addition to the configuration of its flow.
type Config struct {
	Copies      int          // frames for copies that the sink needs at least; 0: the sink takes payloads from where they lie
	MaxCopies   int          // and those that it can use
	Records     bool         // the sink needs headers beside the payloads
	Lent        bool         // the sink has frames of payloads beyond their acknowledgement, and pushes each to Free once
	Relayed     bool         // messages go to peers
	Asks        bool         // a port opens once AskNext has said how far the program's session is
	Numbered    bool         // messages get positions
	End         *journal.End // of a log that the messages go to; nil: no log
	Acknowledge string       // of the log
	// Outcome says what became of message n of the run, from 0 on, when it is acknowledged; nil: all is well.
	Outcome func(n uint64) wire.Reason
	Ready   func() error // an error says why the program cannot open its port yet; nil: it always can
	Once    bool         // no message may be submitted again: it may have left, over an earlier port or in an earlier run
}

// Open makes the end at which the program may open a port.
func Open(e *pipeline.Env, c Config) (*Source, error) {
	from := &e.Flow.From
	if e.Shared.Attach == nil {
		return nil, errNoPrograms
	}
	s := &Source{
		region: e.Region, err: e.Err, do: e.Do, holder: e.Holder, copies: c.Copies > 0, numbered: c.Numbered || c.End != nil, acknowledge: c.Acknowledge, outcome: c.Outcome, once: c.Once, relayed: c.Relayed,
		batch: pipeline.Batch{Frames: make([]umem.Frame, pipeline.Burst)}, pending: make([]pending, from.Window),
	}
	if c.End != nil {
		s.before, s.lost = c.End.Next-1, c.End.Lost
		s.sequences = func(session uint64) uint64 { return c.End.Sessions.Last(session).Sequence }
	}
	if bits.OnesCount(uint(from.Window)) != 1 {
		return nil, fmt.Errorf("from.window is %d, and must be a power of two", from.Window)
	}
	if c.Asks {
		s.question = &question{}
	}
	if c.Records {
		s.records = layout.NewRecords(2 * from.Window)
	}
	var err error
	align := uint32(0)
	if c.Once {
		align = wire.Once
	}
	s.end, err = e.Shared.Attach.NewEnd(attach.EndConfig{
		Flow: e.Flow.Name, Program: from.Attach, Role: wire.Send, Entries: from.Window, Longest: uint32(from.Message), Worker: e.Holder, Do: e.Do,
		Events: e.Events, Next: s.next, Idle: s.idle, Ready: c.Ready, Align: align,
	})
	if err != nil {
		return nil, err
	}
	e.Undo.Add(s.end.Close)
	if err := s.takeFrames(e, c); err != nil {
		return nil, err
	}
	return s, nil
}

// takeFrames takes the frames that the program fills, and those for copies.
func (s *Source) takeFrames(e *pipeline.Env, c Config) error {
	part := s.end.Part()
	share := int(part.Size()/uint64(s.region.FrameSize())) / e.Shared.Config.Submitting(e.Flow.From.Attach)
	own := make([]umem.Frame, min(s.window(), share))
	n := s.takeOwn(e, own)
	if n == 0 || n < len(own) {
		return fmt.Errorf("the memory that program %s writes has %d of %d free frames: raise out in attach.programs", s.end.Program(), n, len(own))
	}
	s.end.SetFrames(own)
	if c.Lent {
		s.lent = make([]bool, part.Size()/uint64(s.region.FrameSize()))
	}
	if !s.copies {
		return nil
	}
	least, most := 2*pipeline.Burst+c.Copies, 2*pipeline.Burst+c.MaxCopies
	frames := make([]umem.Frame, min(most, max(least, e.Shared.Quota.Frames)))
	s.total = e.Holder.Take(frames)
	s.free.Push(frames[:s.total]...)
	if s.total < least {
		return fmt.Errorf("the region has %d free frames; messages of program %s need %d at least: raise region.size", s.total, s.end.Program(), least)
	}
	return nil
}

// takeOwn takes frames of the program's memory: those that the flow has had before, so that no other flow that begins gives
// the program frames in which it has messages that it is to submit to this one again. If some are taken, any are.
func (s *Source) takeOwn(e *pipeline.Env, own []umem.Frame) int {
	copy(own, s.end.Place(len(own), func(flow string) bool {
		f := e.Shared.Config.Flow(flow)
		return f != nil && f.From.Attach == e.Flow.From.Attach
	}))
	n := e.Holder.TakeAt(own)
	if n == len(own) {
		return n
	}
	e.Holder.Give(slices.DeleteFunc(slices.Clone(own), func(f umem.Frame) bool { return f.Len == 0 }))
	return e.Holder.TakeFrom(s.end.Part(), own)
}

func (s *Source) window() int { return len(s.pending) }

// Free returns the list to which the sink pushes frames, on the worker's thread.
func (s *Source) Free() *umem.FreeList { return &s.free }

// Records returns the headers of the messages.
func (s *Source) Records() *layout.Records { return s.records }

// Spare returns how many messages the sink may have at once.
func (s *Source) Spare() int {
	if s.copies {
		return s.total
	}
	return s.window()
}

// Shut closes the program's port, which may open again when Config.Ready permits it. Any goroutine but the worker's may
// call it.
func (s *Source) Shut(why string) error { return s.end.Shut(why) }

// Received returns how many messages of this run were taken. Any goroutine may call it.
func (s *Source) Received() uint64 { return s.receivedShown.Load() }

// AcknowledgeUpTo sets when messages are acknowledged: safe returns how many of the run are as safe as was
// promised. Without this call every message is acknowledged once the sink has been offered it. delivered reports
// whether the sink has delivered everything; nil: it always has.
func (s *Source) AcknowledgeUpTo(safe func() uint64, delivered func() bool) {
	s.safe, s.delivered = safe, delivered
}

// LimitPositions limits the messages that the source takes: room returns how many may follow a position.
func (s *Source) LimitPositions(room func(position uint64) int) { s.room = room }
