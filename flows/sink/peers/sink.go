package peers

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/fanout"
	"github.com/unifiedd/unifiedd/flows/layout"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/flows/worker"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/umem"
)

var _ pipeline.Sink = (*Sink)(nil)

// Sink sends packets or messages to RDMA peers from the frames in which they landed, after the
// flow's stages have changed them.
type Sink struct {
	region  *umem.Region
	device  *device.RDMA
	further []*device.RDMA // of further paths
	fan     *fanout.Fanout
	do      stream.Doer
	names   []string // of the peers
	modes   []string // how their paths are used; empty: they have one
	named   []string // by which a resolver finds them; empty: it does not
	stages  *pipeline.Stages
	relay   bool            // batches have messages; payloads are sent with their origins
	records *layout.Records // headers of messages whose payloads are in the batches; nil: they are in front of payloads
	free    *umem.FreeList  // for frames that no peer needs
	freed   [2 * pipeline.Burst]umem.Frame
	err     *pipeline.FirstError
	dials   pipeline.Service
	times   stream.SenderTimes // of all peers

	nextOf func(ctx context.Context, session uint64) (next uint64, err error) // see NextOf

	blocked bool            // in this round
	stalls  counter.Counter // rounds in which something waited for peers
	taken   counter.Counter // packets or messages that the fanout has taken

	tokens [pipeline.Burst]uint64
	passed uint64 // messages that enough peers have acknowledged

	lastAcknowledged uint64    // while draining: acknowledgements so far
	lastProgress     time.Time // time of the last acknowledgement
}

// lingerTimeout is how long the peers of an ending flow may be silent. Then the sink abandons
// unacknowledged messages.
const lingerTimeout = 2 * time.Second

func (s *Sink) Reap(now time.Time) {
	s.blocked = false
	s.err.Note(s.fan.Poll(now))
	for {
		n := s.fan.Free(s.freed[:])
		for _, f := range s.freed[:n] {
			f.Options = 0
			s.free.Push(f)
		}
		if n < len(s.freed) {
			return
		}
	}
}

// Write implements pipeline.Sink. Stages change each packet once: b.Prepared is the number of
// frames of the batch that they have changed.
func (s *Sink) Write(b *pipeline.Batch, now time.Time) bool {
	whole := umem.Whole(b.Held())
	fresh := b.Frames[b.Prepared:whole]
	if s.relay && s.records == nil {
		for i := range fresh { // peers get payloads, with new headers
			fresh[i].Addr += protocol.HeaderLen
			fresh[i].Len -= protocol.HeaderLen
		}
	}
	s.stages.Apply(s.region, fresh, uint64(now.UnixNano()))
	done := s.offer(b.Frames[:whole])
	b.Prepared = whole - done
	b.Drop(done)
	if done < whole {
		s.Block()
	}
	return done == whole
}

// offer passes whole packets to the fanout and returns how many frames it took.
func (s *Sink) offer(fs []umem.Frame) (done int) {
	packets := uint64(0)
	for done < len(fs) {
		n, _ := umem.PacketLen(fs[done:])
		if n == 0 || !s.offerOne(fs[done:done+n]) {
			break
		}
		done += n
		packets++
	}
	s.taken.Add(packets)
	return done
}

func (s *Sink) offerOne(packet []umem.Frame) bool {
	side := s.region.Side(packet[0])
	stamp := side.Stamp
	if s.records != nil {
		head := s.records.Of(side)
		return s.fan.Relay(packet, 0, stamp, protocol.Origin{Session: head.Session, Sequence: head.Sequence})
	}
	if s.relay {
		header := s.region.At(packet[0].Addr-protocol.HeaderLen, protocol.HeaderLen)
		return s.fan.Relay(packet, 0, stamp, protocol.FirstOrigin(header))
	}
	return s.fan.Offer(packet, 0, stamp)
}

func (s *Sink) Block() {
	s.blocked = true
	s.stalls.Add(1)
}

func (s *Sink) Blocked() bool { return s.blocked }

// Acknowledged returns how many messages enough peers have acknowledged. It is for the worker's
// thread.
func (s *Sink) Acknowledged() uint64 {
	for {
		n := s.fan.Acknowledged(s.tokens[:])
		s.passed += uint64(n)
		if n < len(s.tokens) {
			return s.passed
		}
	}
}

// Delivered reports whether peers have everything. It is for the worker's thread.
func (s *Sink) Delivered() bool { return s.fan.Idle() }

func (s *Sink) Kick() { s.err.Note(s.fan.Kick()) }

// Drain implements pipeline.Sink. It returns true when peers have acknowledged everything, or
// nothing for a while.
func (s *Sink) Drain(now time.Time) (bool, error) {
	if !s.fan.Idle() && now.Sub(s.progress(now)) < lingerTimeout {
		return false, nil
	}
	return s.dials.Stop(), nil
}

// progress returns the time of the last acknowledgement by any peer.
func (s *Sink) progress(now time.Time) time.Time {
	acknowledged := uint64(0)
	for _, p := range s.fan.Stats() {
		acknowledged += p.Sender.Acknowledged
	}
	if s.lastProgress.IsZero() || acknowledged != s.lastAcknowledged {
		s.lastAcknowledged, s.lastProgress = acknowledged, now
	}
	return s.lastProgress
}

func (s *Sink) FDs(dst []unix.PollFd) []unix.PollFd { return s.fan.FDs(dst) }

// Deadline implements pipeline.Sink. A blocked sink is polled again soon: descriptors signal new
// room at peers, but not the passing of time.
func (s *Sink) Deadline(now time.Time) time.Time {
	if s.blocked {
		return now.Add(time.Millisecond)
	}
	return now.Add(worker.MaxWait)
}

// Begin implements pipeline.Sink. It connects peers, and reconnects them when they are lost.
func (s *Sink) Begin() error {
	s.dials.Start(func(ctx context.Context) error { return s.fan.Run(ctx, s.do) })
	return nil
}

// Check implements pipeline.Sink. It returns an error for a missing peer as one to wait for. The
// flow continues with the other peers. An error that ends the flow is also the flow's own: nothing can be sent any
// more, so the flow does not wait until its peers have taken what it still has.
func (s *Sink) Check(time.Time) (waits, ends error) {
	waits, ends = s.check()
	s.err.Note(ends)
	return waits, ends
}

func (s *Sink) check() (waits, ends error) {
	if err := s.dials.Err(); err != nil {
		return nil, err
	}
	if len(s.further) > 0 {
		return s.checkPaths()
	}
	if waits, ends = s.device.Check(); waits != nil || ends != nil {
		return waits, ends
	}
	return s.missing(), nil
}

// missing returns an error for a peer that is not connected, or nil.
func (s *Sink) missing() error {
	for i, p := range s.fan.Stats() {
		if p.Sender.State != stream.SenderConnected {
			return &PeerError{s.names[i], p.Sender.Address, p.Sender.Cause}
		}
	}
	return nil
}

// PeerError is the error for a peer that is not connected.
type PeerError struct{ Name, Address, Cause string }

func (e *PeerError) Error() string {
	text := "peer " + e.Name + " (" + e.Address + ") is not connected"
	if e.Cause != "" {
		text += ": " + e.Cause
	}
	return text
}

func (s *Sink) Announce() []any { return []any{"device", s.device.Name, "peers", len(s.names)} }

func (s *Sink) Observe(to *status.Flow) error {
	out := &status.Sends{Device: s.device.Name}
	for i, p := range s.fan.Stats() {
		sent := &p.Sender
		out.Peers = append(out.Peers, status.Peer{
			Name: s.names[i], Address: sent.Address, State: sent.State, Error: sent.Cause, Certificate: sent.Peer,
			Offered: p.Offered, Acknowledged: sent.Acknowledged, Dropped: p.Dropped, Waiting: uint64(sent.Waiting), InFlight: uint64(sent.InFlight),
			Method: string(sent.Method), Credit: sent.Credit, Bytes: sent.Bytes, Resent: sent.Resent, Connections: sent.Connections, Failures: sent.Failures, Standby: sent.Standby, Moves: sent.Moves, Named: s.named[i], Followed: sent.Followed, Latency: sent.Latency,
			Paths: device.PathStatus(sent.Paths), PathMode: s.modes[i], PathReason: sent.Single,
		})
	}
	to.Sends, to.Stalls = out, s.stalls.Load()
	to.FrameTimes = &status.FrameTimes{Submitted: s.times.Submitted.Distribution(), Done: s.times.Done.Distribution()}
	s.stages.Observe(to)
	return nil
}

// CountFailed implements pipeline.Sink. What peers have not acknowledged when the flow ends is given up. Packets that
// were received and not offered to the peers count as failed. Messages do not: they are still where they came from.
func (s *Sink) CountFailed(to *status.Flow, accepted uint64) {
	for i := range to.Sends.Peers {
		p := &to.Sends.Peers[i]
		p.Dropped["disconnected"] += p.Waiting + p.InFlight
		p.Waiting, p.InFlight = 0, 0
	}
	if _, counts := to.Dropped["write_failed"]; counts && s.err.Get() != nil {
		to.Dropped["write_failed"] = accepted - s.taken.Load()
	}
}
