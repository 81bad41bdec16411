package message

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

var _ pipeline.Source = (*Source)(nil)

// Source receives messages of RDMA clients and acknowledges them. Messages land in frames, or in
// extents if they are longer than a frame.
type Source struct {
	region    *umem.Region
	device    *device.RDMA
	receiver  *stream.Receiver
	listeners []*connect.Listener // by device
	further   []*device.RDMA      // of further paths
	secure    bool                // connections are TLS
	method    config.Method
	do        stream.Doer

	free   umem.FreeList // frames or extents that messages may land in
	total  int           // how many there are, in any state
	each   int           // region frames in one of them
	least  int           // how many the source needs
	long   bool          // they are extents
	holder *umem.Holder  // of the worker's frames
	window int           // receives to keep posted
	posted int           // receives posted now
	batch  pipeline.Batch

	acks      acknowledger
	dedup     *dedup                    // finds messages that relays send again; nil: none
	early     bool                      // acknowledge before the sink gets the messages
	safe      func() uint64             // messages that may be acknowledged; nil: all received
	room      func(position uint64) int // messages that may follow a position; nil: no limit
	delivered func() bool               // the sink has delivered everything; nil: it always does
	relay     bool                      // CountLost counts messages without an acknowledgement
	log       *Log                      // nil: not a log
	member    bool                      // of a group: package member observes the log
	combiner  Combiner                  // nil: messages are passed on one by one

	stopped atomic.Bool // no more receives are posted
	packets counter.Counter
	bytes   counter.Counter
	serving pipeline.Service

	lastPackets, lastRound uint64 // while draining: messages received, and the round of the last one
}

// Combiner combines the messages of all clients. Its methods run on the worker's thread, except
// Observe.
type Combiner interface {
	// Receive takes messages from the source and passes the results to the sink.
	Receive(sink pipeline.Output, now time.Time) (more bool)
	// Acknowledge acknowledges the messages whose combinations were delivered.
	Acknowledge(now time.Time)
	// Observe adds the combiner to a status.
	Observe(to *status.Flow)
}

// Combine makes c receive the messages.
func (s *Source) Combine(c Combiner) { s.combiner = c }

// Free returns the list of free frames. The sink pushes frames to it on the worker's thread.
func (s *Source) Free() *umem.FreeList { return &s.free }

// Spare returns how many frames or extents messages may use in addition to the posted ones.
func (s *Source) Spare() int { return s.total - s.window }

// InExtents reports whether messages land in extents.
func (s *Source) InExtents() bool { return s.long }

// Received returns how many messages of this run were numbered. Any goroutine may call it.
func (s *Source) Received() uint64 { return s.acks.receivedShown.Load() }

// Acknowledged returns how many of them are acknowledged. It is for the worker's thread.
func (s *Source) Acknowledged() uint64 { return s.acks.acknowledged }

// OwnerID returns the owner of a session: see protocol.OwnerOf.
func (s *Source) OwnerID(session uint16) uint64 { return s.receiver.OwnerID(session) }

// Secure reports whether connections are TLS.
func (s *Source) Secure() bool { return s.secure }

// Device returns the device that messages come from.
func (s *Source) Device() *device.RDMA { return s.device }

// Receiver returns the receiver, for the worker's thread.
func (s *Source) Receiver() *stream.Receiver { return s.receiver }

// Receive implements pipeline.Source. It receives only messages that can be numbered. It leaves
// enough frames for clients to send, even if the sink is slow.
func (s *Source) Receive(sink pipeline.Output, open bool, now time.Time) (more bool) {
	if s.combiner != nil {
		return s.combiner.Receive(sink, now)
	}
	if !sink.Write(&s.batch, now) || !open {
		return false
	}
	most := min(s.acks.room(), s.total-s.window-s.away())
	if s.room != nil {
		most = min(most, s.room(s.acks.before+s.acks.received))
	}
	if most <= 0 {
		sink.Block()
		return false
	}
	first, more := s.Take(most)
	if s.dedup != nil {
		s.removeDuplicates(first, now)
	}
	fresh := s.batch.Frames[first:s.batch.Len]
	s.acks.number(fresh, now)
	if s.early && len(fresh) > 0 {
		s.acknowledgeNow(now)
	}
	return sink.Write(&s.batch, now) && more
}

// Take receives at most most messages into the batch. first is the number of messages that the
// batch had before; more reports whether others may be waiting. It is for the worker's thread.
func (s *Source) Take(most int) (first int, more bool) {
	b := &s.batch
	first = b.Len
	want := min(len(b.Frames)-first, most)
	got := s.receiver.Recv(b.Frames[first : first+want])
	b.Len += got
	s.posted -= got
	bytes := uint64(0)
	for _, f := range b.Frames[first:b.Len] {
		bytes += uint64(f.Len)
	}
	if got > 0 {
		s.packets.Add(uint64(got))
		s.bytes.Add(bytes)
	}
	return first, got > 0 && got == want
}

// Batch returns the messages that were received and not passed on. It is for the worker's thread.
func (s *Source) Batch() *pipeline.Batch { return &s.batch }

// acknowledgeNow acknowledges received messages before the sink submits I/O, because the system
// calls for the disk take longer than the rest of the round.
func (s *Source) acknowledgeNow(now time.Time) {
	s.acks.acknowledge(s.receiver, s.acks.received, now)
	s.Supply() // sends credits with the acknowledgements
	s.acks.err.Note(s.receiver.Poll(now))
}

func (s *Source) Acknowledge(now time.Time) {
	if s.combiner != nil {
		s.combiner.Acknowledge(now)
		return
	}
	upTo := s.acks.received
	if s.safe != nil {
		upTo = s.safe()
	}
	s.acks.acknowledge(s.receiver, upTo, now)
}

// CountReceived counts a message that a combiner has taken.
func (s *Source) CountReceived() { s.acks.received++ }

// AcknowledgeOne acknowledges a message that a combiner has taken. It was received at a time in
// nanoseconds since 1970.
func (s *Source) AcknowledgeOne(session uint16, sequence uint64, received int64, now time.Time) {
	s.receiver.Acknowledge(session, sequence, 0)
	s.acks.times.Record(uint64(max(0, now.UnixNano()-received)))
	s.acks.acknowledged++
}

// away returns how many frames of messages are neither free nor posted.
func (s *Source) away() int { return s.total - s.free.Len() - s.posted }

// InFlight implements pipeline.Source. Watermarks do not stop a combiner, because the message that
// it waits for may arrive last.
func (s *Source) InFlight() int {
	if s.combiner != nil {
		return 0
	}
	return (s.away() - s.batch.Len) * s.each
}

// Supply implements pipeline.Source. It posts receives.
func (s *Source) Supply() {
	for !s.stopped.Load() && s.posted < s.window {
		n := min(s.free.Len(), s.window-s.posted, 2*pipeline.Burst)
		used := s.receiver.Supply(s.free.Top(n))
		s.free.Drop(n, used)
		if s.posted += used; used == 0 || used < n {
			return
		}
	}
}

// Kick implements pipeline.Source. It sends acknowledgements and credits.
func (s *Source) Kick(now time.Time) {
	s.acks.err.Note(s.receiver.Poll(now))
	s.acks.publish()
}

// FDs implements pipeline.Source. The descriptor stays in the list while the sink is blocked,
// because it also signals other events.
func (s *Source) FDs(dst []unix.PollFd, _ bool) []unix.PollFd {
	return s.receiver.FDs(dst)
}

// Drained implements pipeline.Source. It returns true when a whole round has received nothing.
func (s *Source) Drained(rounds uint64) bool {
	if now := s.packets.Load(); now != s.lastPackets || s.lastRound == 0 || s.batch.Len > 0 {
		s.lastPackets, s.lastRound = now, rounds
	}
	return rounds >= s.lastRound+2
}

// Leave implements pipeline.Source. It returns true when clients have their acknowledgements and
// know that the flow ends. Messages that the sink could not deliver are not acknowledged; clients
// still have them.
func (s *Source) Leave() bool {
	if s.delivered == nil && !s.acks.complete() {
		return false
	}
	if (s.delivered == nil || s.delivered()) && !s.receiver.Idle() {
		return false
	}
	return s.serving.Stop()
}

// Begin implements pipeline.Source. Clients may connect.
func (s *Source) Begin() error {
	s.serving.Start(func(ctx context.Context) error { return s.receiver.ServeAll(ctx, s.listeners, s.do) })
	return nil
}

// StopReceiving implements pipeline.Source. Clients get no more credits. If the flow failed, the
// source ends their connections at once.
func (s *Source) StopReceiving(failed bool) error {
	if failed {
		s.serving.Stop()
	}
	s.stopped.Store(true)
	return nil
}

func (s *Source) Traffic() (packets, bytes uint64) { return s.packets.Load(), s.bytes.Load() }

func (s *Source) Accepted() uint64 {
	n := s.packets.Load()
	if s.dedup != nil {
		n -= s.dedup.duplicates.Load() + s.dedup.refused.Load()
	}
	return n
}

func (s *Source) Check(time.Time) (waits, ends error) {
	if err := s.serving.Err(); err != nil {
		return nil, err
	}
	return s.checkDevices()
}

func (s *Source) Extents() int {
	if !s.long {
		return 0
	}
	return s.total
}

func (s *Source) Shrink(q pipeline.Quota) (over bool) {
	quota := q.Frames
	if s.long {
		quota = q.Extents - layoutExtents
	}
	return pipeline.ShrinkFrames(s.holder, &s.free, &s.total, max(quota, s.least))
}
