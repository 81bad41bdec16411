package replay

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/worker"
	"github.com/unifiedd/unifiedd/internal/capfile"
	"github.com/unifiedd/unifiedd/internal/linktype"
	"github.com/unifiedd/unifiedd/internal/netdev"
	"github.com/unifiedd/unifiedd/internal/numa"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// Replay sends the packets of captures through an interface, from where the disk put them:
//
//	NVMe read → packets in extents → AF_XDP Send, each at its time … Reap → NVMe read
var _ pipeline.Flow = (*Replay)(nil)

type Replay struct {
	pipeline.Server
	err      *pipeline.FirstError
	log      *slog.Logger
	reader   reader
	sender   sender
	book     *umem.Book
	health   pipeline.Health // of the disk
	begun    atomic.Bool
	stopping atomic.Bool
	sentAll  atomic.Bool // the device has taken every packet
	told     bool        // that it is done

	unpacked uint64 // bytes copied to temporary files
}

// Poll is one round.
func (s *Replay) Poll(now time.Time) (more bool) {
	s.sender.reap(&s.reader)
	s.err.Note(s.reader.reap())
	s.reader.release()
	s.reader.fetch()
	s.err.Note(s.reader.queue.Kick())
	more = s.forward(now)
	if s.sender.inFlight.Load() > 0 || !s.sender.pausedSince.IsZero() {
		s.err.Note(s.sender.kick())
	}
	s.book.Publish()
	if !s.told && s.Done() {
		s.told = true
		s.err.Tell()
	}
	return more
}

// forward sends the packets that are due.
func (s *Replay) forward(now time.Time) bool {
	switch {
	case s.err.Get() != nil || !s.begun.Load() || s.stopping.Load() || s.sentAll.Load():
		return false
	case s.sender.noLink.Load():
		s.sender.pause()
		return false
	case !s.sender.pausedSince.IsZero():
		return false
	}
	more, err := s.sender.send(&s.reader, now)
	s.err.Note(err)
	if s.reader.sentAll && !s.reader.found || s.sender.full() {
		s.sentAll.Store(true)
	}
	return more
}

func (s *Replay) FDs(dst []unix.PollFd) []unix.PollFd {
	return append(dst, unix.PollFd{Fd: int32(s.reader.queue.FD()), Events: unix.POLLIN})
}

// Deadline returns when the next packet is due, less the time to spin. The device does not signal
// completions.
func (s *Replay) Deadline(now time.Time) time.Time {
	at := now.Add(worker.MaxWait)
	if s.sender.inFlight.Load() > 0 || !s.sender.pausedSince.IsZero() {
		at = now.Add(time.Millisecond)
	}
	if s.sender.timed && s.sender.pausedSince.IsZero() && !s.stopping.Load() {
		at = pipeline.Earlier(at, s.sender.due.Add(-s.sender.spin))
	}
	return at
}

// Begin starts to send.
func (s *Replay) Begin() error {
	s.begun.Store(true)
	return nil
}

// Done reports whether every packet was sent.
func (s *Replay) Done() bool { return s.sentAll.Load() && s.sender.inFlight.Load() == 0 }

// Traffic returns the packets and bytes that the device has taken.
func (s *Replay) Traffic() (packets, bytes uint64) {
	return s.sender.packets.Load(), s.sender.bytes.Load()
}

// Check implements pipeline.Flow. Without a link the replay pauses.
func (s *Replay) Check(now time.Time) (waits, ends error) {
	err := s.sender.net.Check()
	down := errors.Is(err, xdp.ErrInterfaceDown)
	s.sender.noLink.Store(down)
	switch {
	case down:
		return err, nil
	case err != nil:
		return nil, err
	}
	return s.health.Check(now, s.from(), "nothing more is sent", s.reader.queue.Stats()), nil
}

// StopReceiving stops sending.
func (s *Replay) StopReceiving() error {
	s.stopping.Store(true)
	return nil
}

// Drain waits for the disk, and until the device has sent its packets, unless the interface is
// down.
func (s *Replay) Drain(time.Time, uint64) (bool, error) {
	return s.reader.queue.Stats().InFlight == 0 && (s.sender.inFlight.Load() == 0 || !s.sender.pausedSince.IsZero() || s.sender.noLink.Load()), nil
}

func (s *Replay) Pending() int { return int(s.reader.queue.Stats().InFlight) }

func (s *Replay) CloseQueue() error { return s.reader.queue.CloseWithin(time.Millisecond) }

// Open opens captures and an interface. The flow sends after Begin.
func Open(e *pipeline.Env) (*pipeline.Run, error) {
	s := &Replay{err: e.Err, log: e.Log, book: e.Book}
	s.reader.region, s.sender.region = e.Region, e.Region
	var err error
	if s.reader.captures, err = openCaptures(e, e.Flow.From.Captures()); err != nil {
		return nil, err
	}
	for i := range s.reader.captures {
		s.unpacked += uint64(s.reader.captures[i].copied)
	}
	if err := s.openReader(e); err != nil {
		return nil, err
	}
	if err := s.openSender(e); err != nil {
		return nil, err
	}
	return pipeline.NewRun(e, s, numa.OfPath(s.reader.captures[0].name), s.sender.net.Node()), nil
}

// openReader opens the disk queue.
func (s *Replay) openReader(e *pipeline.Env) (err error) {
	extents := make([]umem.Frame, max(e.Shared.Quota.Extents, minExtents+1))
	got := e.Holder.TakeExtents(extents)
	if got < minExtents+1 {
		return fmt.Errorf("the region has %d free extents for this flow; captures are read into %d at least, and one is kept: raise region.extents", got, minExtents)
	}
	extents = extents[:got]
	r := &s.reader
	if r.queue, err = nvme.Open(nvme.Config{Worker: e.Holder, Name: "flow " + e.Flow.Name, Depth: got, Targets: len(r.captures)}); err != nil {
		return err
	}
	e.Undo.Add(r.queue.Close)
	for i := range r.captures {
		if r.captures[i].number, err = r.queue.Add(r.captures[i].target); err != nil {
			return err
		}
	}
	r.loopsToRead = e.Flow.From.Loop - 1
	if e.Flow.From.Loop == config.Endless {
		r.loopsToRead = config.Endless
	}
	r.loopsToSend = r.loopsToRead
	s.openBounce(extents[0])
	r.begin(extents[1:])
	return nil
}

// openBounce divides an extent into bounce buffers.
func (s *Replay) openBounce(extent umem.Frame) {
	e := &s.sender
	e.bounceRange.from, e.bounceRange.to = extent.Addr, extent.Addr+s.reader.region.ExtentSize()
	for at := e.bounceRange.from; at < e.bounceRange.to; at += maxDescriptor {
		e.bounce.Push(umem.Frame{Addr: at})
	}
}

// openSender opens the interface.
func (s *Replay) openSender(env *pipeline.Env) (err error) {
	e, to := &s.sender, env.Flow.To
	x := xdp.Config{
		Interface: to.Interface, Holder: env.Holder, Queues: []uint32{0}, Direction: xdp.Send, Lent: true,
		Shape: umem.Shape{MultiBuffer: true, Unaligned: true}, RingSize: uint32(to.Ring),
	}
	if x.Policy, err = xdp.ParsePolicy(string(to.ZeroCopy)); err != nil {
		return err
	}
	card, err := netdev.Find(to.Interface)
	if errors.Is(err, netdev.ErrNotFound) { // opening the interface returns the error
		card, err = netdev.Device{Name: to.Interface, Link: linktype.Ethernet, Known: true}, nil
	}
	if err = errors.Join(err, card.Sends()); err != nil {
		return err
	}
	x.RawIP, e.link = true, uint32(card.Link)
	if err := s.reader.checkLinks(card); err != nil {
		return err
	}
	expr, err := config.ParseFilter(env.Flow.From.Filter, card.Link)
	if err != nil {
		return err
	}
	if expr != nil {
		e.match, e.linearBuf = expr.Matcher(), make([]byte, capfile.MaxLen)
	}
	if e.net, err = xdp.Open(x); err != nil {
		return err
	}
	env.Undo.Add(e.net.Close)
	e.port = e.net.Ports()[0]
	env.Undo.Add(e.port.Close)
	s.reader.port = e.port
	limits := e.port.Limits()
	if e.longest = limits.Message; limits.Frames > 2 { // a packet in two extents needs two more descriptors
		e.longest = min(e.longest, uint64(limits.Frames-2)*maxDescriptor)
	}
	e.port.Lend([]umem.Frame{{Addr: e.bounceRange.from}})
	e.pace = pacer{pace: to.Pace, maxGap: to.MaxGap}
	e.spin, e.allowed, e.limit = to.Spin, to.Late, env.Shared.Limit
	e.batch, e.dueTimes = make([]umem.Frame, 0, pipeline.Burst*e.port.Limits().Frames+1), make([]time.Time, 0, pipeline.Burst)
	return nil
}

// from returns the name of the current file.
func (s *Replay) from() string { return s.reader.captures[s.reader.capture.Load()].name }

func (s *Replay) Announce() []any {
	g := s.sender.net.Granted()
	a := []any{"captures", len(s.reader.captures), "pace", s.sender.pace.pace.String(), "zero_copy", g.ZeroCopy, "multi_buffer", g.MultiBuffer}
	if why := g.WhyNotZeroCopy(); why != "" {
		a = append(a, "why_no_zero_copy", why)
	}
	return a
}

// Observe implements pipeline.Flow. It reads the sender's counters before the reader's, so that the
// status never shows more packets sent than read.
func (s *Replay) Observe(to *status.Flow) error {
	e, g := &s.sender, s.sender.net.Granted()
	to.To = s.sender.net.Name()
	to.ZeroCopy, to.WhyNot, to.MultiBuffer = g.ZeroCopy, g.WhyNotZeroCopy(), g.MultiBuffer
	to.Packets, to.Bytes, to.Stalls, to.Refused = e.packets.Load(), e.bytes.Load(), e.stalls.Load(), e.refused.Load()
	for why, name := range skipNames {
		to.Dropped[name] = e.skipped[why].Load()
	}
	to.Dropped["not_sent"] = 0 // CountLost sets it
	to.Offered = e.read.Load()
	to.CopiedBytes["joined"], to.CopiedBytes["unpacked"] = e.copied.Load(), s.unpacked
	disk := s.reader.queue.Stats()
	to.KernelBytes["disk"], to.KernelBytes["xdp"] = disk.Copied, 0
	if !g.ZeroCopy {
		to.KernelBytes["xdp"] = to.Bytes
	}
	to.DiskErrors[unix.ErrnoName(unix.EIO)] = 0
	for errno, n := range disk.Errors {
		if errno != unix.ENODATA { // not the end of a file
			to.DiskErrors[unix.ErrnoName(errno)] = n
		}
	}
	lost, err := s.sender.net.Unsent()
	to.Replay = &status.Replay{
		Pace: s.sender.pace.pace.String(), Captures: len(s.reader.captures), Played: s.reader.played.Load(), File: s.from(), Offset: s.reader.offset.Load(),
		Late: e.late.Load(), Allowed: e.allowed.Nanoseconds(), Lateness: e.times.Distribution(), Paused: float64(e.paused.Load()) / 1e9, Unsent: lost,
	}
	return err
}

// CountLost counts the descriptors that the device did not complete. A short packet has one.
func (s *Replay) CountLost(to *status.Flow) {
	to.Dropped["not_sent"] = uint64(max(0, s.sender.inFlight.Load()))
}
