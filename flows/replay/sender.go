package replay

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/bpf/filter"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/internal/capfile"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/internal/linktype"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// sender sends packets through an interface, each when it is due, from the reader's extents. It
// belongs to the worker's thread; any goroutine may read the counters.
type sender struct {
	region      *umem.Region
	net         *xdp.Interface
	port        *xdp.Port
	pace        pacer
	spin        time.Duration
	allowed     time.Duration
	link        uint32          // LINKTYPE_ of the interface
	longest     uint64          // largest length of a packet for the interface
	limit       uint64          // packets to send; 0: no limit
	match       *filter.Matcher // nil: send every packet
	linearBuf   []byte          // for the filter: a packet that spans extents, in one piece
	bounce      umem.FreeList   // buffers for packets whose parts the device does not gather
	bounceRange struct {        // addresses of those buffers
		from, to uint64
	}

	due         time.Time // of the next packet
	timed       bool      // due is known
	batch       []umem.Frame
	dueTimes    []time.Time // of the packets in the batch
	pausedSince time.Time   // when the interface went down; zero: it is up

	noLink atomic.Bool // the interface has no link: packets would be lost
	reaped [pipeline.Burst]umem.Frame

	read     counter.Counter // packets found
	packets  counter.Counter // packets handed to the device
	bytes    counter.Counter
	skipped  [sendable]counter.Counter
	late     counter.Counter // packets that left later than allowed
	times    latency.Shared
	inFlight atomic.Int64    // descriptors that belong to the device
	stalls   counter.Counter // rounds in which the device was full
	refused  counter.Counter // wake-ups that the kernel refused
	paused   counter.Counter // nanoseconds for which the interface was down
	copied   counter.Counter // bytes that the sender copied
}

// skipReason is why a packet of a capture is not sent.
type skipReason uint8

const (
	otherLink skipReason = iota
	cutShort
	notMatched
	tooLong
	tooShort
	sendable
)

var skipNames = [sendable]string{"other_link_type", "cut_short", "not_matched", "too_long", "too_short"}

// minPacket is the length of an Ethernet header.
const minPacket = 14

// classify returns why a packet is not sent, or sendable.
func (e *sender) classify(p *capfile.Packet, r *reader) skipReason {
	switch {
	case p.Link != e.link && uint32(linktype.Type(p.Link).Like()) != e.link:
		return otherLink
	case e.match != nil && !e.match.MatchCut(e.linear(p, r), int(p.Orig)):
		return notMatched
	case p.Len < p.Orig:
		return cutShort
	case p.Len < minPacket:
		return tooShort
	case uint64(p.Len) > e.longest:
		return tooLong
	}
	return sendable
}

// linear returns a packet in one piece. It copies the few packets that span two extents.
func (e *sender) linear(p *capfile.Packet, r *reader) []byte {
	if p.Len == 0 {
		return nil
	}
	addr, here := r.address(p.Offset)
	if int64(p.Len) <= here {
		return e.region.At(addr, uint64(p.Len))
	}
	e.linearBuf = e.linearBuf[:p.Len]
	e.copied.Add(uint64(p.Len))
	return e.copyTo(e.linearBuf, p, r)
}

// copyTo fills dst with the first bytes of a packet, and returns dst.
func (e *sender) copyTo(dst []byte, p *capfile.Packet, r *reader) []byte {
	for done := int64(0); done < int64(len(dst)); {
		addr, here := r.address(p.Offset + done)
		done += int64(copy(dst[done:], e.region.At(addr, uint64(min(here, int64(len(dst))-done)))))
	}
	return dst
}

// send passes due packets to the device, and reports whether it could continue at once.
func (e *sender) send(r *reader, now time.Time) (more bool, err error) {
	for range pipeline.Burst {
		p, err := r.next()
		if p == nil || err != nil || e.full() {
			return false, errors.Join(err, e.flush(r))
		}
		if !e.timed && !e.ready(p, r, now) {
			continue
		}
		if !e.pace.unpaced() && now.Before(e.due) {
			if len(e.batch) > 0 || e.due.Sub(now) > e.spin {
				return len(e.batch) > 0, e.flush(r)
			}
			now = waitUntil(e.due)
		}
		if !e.queue(p, r) {
			e.stalls.Add(1)
			return false, e.flush(r)
		}
	}
	return true, e.flush(r)
}

// ready reports whether a packet is to be sent, and sets its due time.
func (e *sender) ready(p *capfile.Packet, r *reader, now time.Time) bool {
	e.read.Add(1)
	if why := e.classify(p, r); why != sendable {
		e.skipped[why].Add(1)
		r.pass()
		return false
	}
	if r.newRecording {
		e.pace.newRecording()
		r.newRecording = false
	}
	e.due, e.timed = e.pace.due(p.Len, p.Time, p.Timed, now), true
	return true
}

// waitUntil spins until a time in the near future.
func waitUntil(t time.Time) time.Time {
	for {
		if now := time.Now(); !now.Before(t) {
			return now
		}
	}
}

// full reports whether the limit of packets is reached.
func (e *sender) full() bool {
	return e.limit > 0 && e.packets.Load()+uint64(len(e.dueTimes)) >= e.limit
}

// queue puts a packet into the batch if there is room for it.
func (e *sender) queue(p *capfile.Packet, r *reader) bool {
	before := len(e.batch)
	e.batch = r.descriptors(e.batch, p.Offset, int64(p.Len))
	if len(e.batch)-before > e.port.Limits().Frames || e.batch[before].Len < minPacket {
		if e.batch = e.batch[:before]; !e.copyToBounce(p, r) {
			return false
		}
	}
	if e.port.Room() < len(e.batch) {
		e.freeBounce(e.batch[before:])
		e.batch = e.batch[:before]
		return false
	}
	r.sent(e.batch[before:])
	e.dueTimes = append(e.dueTimes, e.due)
	e.timed = false
	r.pass()
	return true
}

// copyToBounce copies a packet whose parts the device does not gather: the device takes one part
// only, or the first part is too short. Of a packet that is longer than a descriptor it copies the
// beginning.
func (e *sender) copyToBounce(p *capfile.Packet, r *reader) bool {
	var one [1]umem.Frame
	if !e.bounce.Pop(one[:]) {
		return false
	}
	f := umem.Frame{Addr: one[0].Addr, Len: min(p.Len, maxDescriptor)}
	e.copyTo(e.region.Bytes(f), p, r)
	e.copied.Add(uint64(f.Len))
	rest := int64(p.Len - f.Len)
	if rest > 0 {
		f.Options = umem.More
	}
	e.batch = append(e.batch, f)
	if rest > 0 {
		e.batch = r.descriptors(e.batch, p.Offset+int64(f.Len), rest)
	}
	return true
}

// freeBounce frees bounce buffers.
func (e *sender) freeBounce(fs []umem.Frame) {
	for i := range fs {
		if f := fs[i]; f.Addr >= e.bounceRange.from && f.Addr < e.bounceRange.to {
			e.bounce.Push(umem.Frame{Addr: f.Addr &^ (maxDescriptor - 1)})
		}
	}
}

// flush passes the batch to the device, which has room for it, and records the time.
func (e *sender) flush(r *reader) error {
	if len(e.batch) == 0 {
		return nil
	}
	bytes := uint64(0)
	for i := range e.batch {
		bytes += uint64(e.batch[i].Len)
	}
	taken := e.port.Send(e.batch)
	err := e.kick()
	e.packets.Add(uint64(len(e.dueTimes)))
	e.bytes.Add(bytes)
	e.inFlight.Store(e.inFlight.Load() + int64(taken))
	if !e.pace.unpaced() {
		e.measure()
	}
	short := taken < len(e.batch)
	e.batch, e.dueTimes = e.batch[:0], e.dueTimes[:0]
	if short {
		return errShort
	}
	return err
}

// errShort is a bug, because the caller checked for room.
var errShort = errors.New("the port took less than it had room for")

// measure records how late the packets of a batch left.
func (e *sender) measure() {
	now := time.Now()
	run := e.times.Run()
	late := uint64(0)
	for i := range e.dueTimes {
		delay := max(0, now.Sub(e.dueTimes[i]))
		run.Record(uint64(delay))
		if delay > e.allowed {
			late++
		}
	}
	run.End()
	if late > 0 {
		e.late.Add(late)
	}
}

// kick makes the device send. While the interface is down, the replay pauses.
func (e *sender) kick() error {
	err := e.port.Kick()
	switch {
	case errors.Is(err, xdp.ErrInterfaceDown):
		e.refused.Add(1)
		e.pause()
		return nil
	case err != nil:
		return err
	case !e.noLink.Load():
		e.resume()
	}
	return nil
}

// pause begins a pause.
func (e *sender) pause() {
	if e.pausedSince.IsZero() {
		e.pausedSince = time.Now()
	}
}

// resume ends a pause. All later packets are delayed by its length.
func (e *sender) resume() {
	if e.pausedSince.IsZero() {
		return
	}
	d := time.Since(e.pausedSince)
	e.pace.shift(d)
	if e.timed {
		e.due = e.due.Add(d)
	}
	e.paused.Add(uint64(d))
	e.pausedSince = time.Time{}
}

// reap takes back descriptors from the device.
func (e *sender) reap(r *reader) {
	for {
		n := e.port.Reap(e.reaped[:])
		for i := range e.reaped[:n] {
			r.done(e.reaped[i].Addr)
		}
		e.freeBounce(e.reaped[:n])
		if n > 0 {
			e.inFlight.Store(e.inFlight.Load() - int64(n))
		}
		if n < len(e.reaped) {
			return
		}
	}
}
