package flows

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

// egress is the end of a flow that sends packets by an interface, each at its time, from where a reel has them. It belongs to
// the worker's thread; the counters may be read from anywhere.
type egress struct {
	region  *umem.Region
	net     *xdp.Interface
	port    *xdp.Port
	pace    pacer
	spin    time.Duration
	late    time.Duration
	link    uint32          // LINKTYPE_ of the packets that it takes
	longest uint64          // bytes of a packet that the interface takes
	limit   uint64          // packets to send; 0: no limit
	match   *filter.Matcher // nil: all are wanted
	whole   []byte          // for packets in two extents, that the filter looks at
	seam    umem.FreeList   // pieces of memory for packets whose parts the device does not gather
	bounds  struct {        // of the seam
		from, to uint64
	}

	due     time.Time // of the packet that is next
	timed   bool      // it is known
	batch   []umem.Frame
	turns   []time.Time // of the packets in the batch
	stopped time.Time   // since when the interface is down; zero: it is up

	resting atomic.Bool // the interface has no link: what was sent would be lost
	reaped  [pipeline.Burst]umem.Frame

	read    counter.Counter // packets that were found
	packets counter.Counter // of those, handed to the device
	bytes   counter.Counter
	unsent  [unsents]counter.Counter
	tardy   counter.Counter // packets that left later than is allowed
	times   latency.Shared
	flying  atomic.Int64    // descriptors the device has
	stalls  counter.Counter // rounds in which it could take no more
	refused counter.Counter // wake-ups the kernel refused
	paused  counter.Counter // nanoseconds for which the interface was down
	copied  counter.Counter // bytes
}

// unsent is why a packet of a capture is not sent.
type unsent uint8

const (
	otherLink unsent = iota
	cutShort
	notMatched
	tooLong
	tooShort
	unsents
)

var unsentNames = [unsents]string{"other_link_type", "cut_short", "not_matched", "too_long", "too_short"}

// shortestPacket is an Ethernet header.
const shortestPacket = 14

// judge says why a packet is not to be sent; unsents: it is.
func (e *egress) judge(p *capfile.Packet, r *reel) unsent {
	switch {
	case p.Link != e.link && uint32(linktype.Type(p.Link).Like()) != e.link:
		return otherLink
	case e.match != nil && !e.match.MatchCut(e.look(p, r), int(p.Orig)):
		return notMatched
	case p.Len < p.Orig:
		return cutShort
	case p.Len < shortestPacket:
		return tooShort
	case uint64(p.Len) > e.longest:
		return tooLong
	}
	return unsents
}

// look is a packet in one piece. Those in two extents, which are few, are copied.
func (e *egress) look(p *capfile.Packet, r *reel) []byte {
	if p.Len == 0 {
		return nil
	}
	addr, here := r.where(p.Offset)
	if int64(p.Len) <= here {
		return e.region.At(addr, uint64(p.Len))
	}
	e.whole = e.whole[:p.Len]
	e.copied.Add(uint64(p.Len))
	return e.gather(e.whole, p, r)
}

// gather copies as much of the beginning of a packet as there is room for.
func (e *egress) gather(dst []byte, p *capfile.Packet, r *reel) []byte {
	for done := int64(0); done < int64(len(dst)); {
		addr, here := r.where(p.Offset + done)
		done += int64(copy(dst[done:], e.region.At(addr, uint64(min(here, int64(len(dst))-done)))))
	}
	return dst
}

// send hands packets to the device whose time has come, and reports whether it could go on at once.
func (e *egress) send(r *reel, now time.Time) (more bool, err error) {
	for range pipeline.Burst {
		p, err := r.next()
		if p == nil || err != nil || e.full() {
			return false, errors.Join(err, e.flush(r))
		}
		if !e.timed && !e.ready(p, r, now) {
			continue
		}
		if !e.pace.top() && now.Before(e.due) {
			if len(e.batch) > 0 || e.due.Sub(now) > e.spin {
				return len(e.batch) > 0, e.flush(r)
			}
			now = until(e.due)
		}
		if !e.take(p, r) {
			e.stalls.Add(1)
			return false, e.flush(r)
		}
	}
	return true, e.flush(r)
}

// ready reports whether a packet is to be sent, and finds out when.
func (e *egress) ready(p *capfile.Packet, r *reel, now time.Time) bool {
	e.read.Add(1)
	if why := e.judge(p, r); why != unsents {
		e.unsent[why].Add(1)
		r.pass()
		return false
	}
	if r.fresh {
		e.pace.cut()
		r.fresh = false
	}
	e.due, e.timed = e.pace.due(p.Len, p.Time, p.Timed, now), true
	return true
}

// until waits for a moment that is near.
func until(t time.Time) time.Time {
	for {
		if now := time.Now(); !now.Before(t) {
			return now
		}
	}
}

// full reports whether no more packets are to be sent.
func (e *egress) full() bool {
	return e.limit > 0 && e.packets.Load()+uint64(len(e.turns)) >= e.limit
}

// take puts a packet into the batch, if there is room for it.
func (e *egress) take(p *capfile.Packet, r *reel) bool {
	before := len(e.batch)
	e.batch = r.parts(e.batch, p.Offset, int64(p.Len))
	if len(e.batch)-before > e.port.Limits().Frames || e.batch[before].Len < shortestPacket {
		if e.batch = e.batch[:before]; !e.join(p, r) {
			return false
		}
	}
	if e.port.Room() < len(e.batch) {
		e.giveSeam(e.batch[before:])
		e.batch = e.batch[:before]
		return false
	}
	r.sent(e.batch[before:])
	e.turns = append(e.turns, e.due)
	e.timed = false
	r.pass()
	return true
}

// join copies a packet whose parts the device does not gather, since it takes one only or the first is too short for it; of one
// that is longer than a part its beginning.
func (e *egress) join(p *capfile.Packet, r *reel) bool {
	var one [1]umem.Frame
	if !e.seam.Pop(one[:]) {
		return false
	}
	f := umem.Frame{Addr: one[0].Addr, Len: min(p.Len, longestPart)}
	e.gather(e.region.Bytes(f), p, r)
	e.copied.Add(uint64(f.Len))
	rest := int64(p.Len - f.Len)
	if rest > 0 {
		f.Options = umem.More
	}
	e.batch = append(e.batch, f)
	if rest > 0 {
		e.batch = r.parts(e.batch, p.Offset+int64(f.Len), rest)
	}
	return true
}

// giveSeam gives pieces of the seam back.
func (e *egress) giveSeam(fs []umem.Frame) {
	for i := range fs {
		if f := fs[i]; f.Addr >= e.bounds.from && f.Addr < e.bounds.to {
			e.seam.Push(umem.Frame{Addr: f.Addr &^ (longestPart - 1)})
		}
	}
}

// flush hands the batch to the device, which has room for it, and notes when that has taken it.
func (e *egress) flush(r *reel) error {
	if len(e.batch) == 0 {
		return nil
	}
	bytes := uint64(0)
	for i := range e.batch {
		bytes += uint64(e.batch[i].Len)
	}
	taken := e.port.Send(e.batch)
	err := e.kick()
	e.packets.Add(uint64(len(e.turns)))
	e.bytes.Add(bytes)
	e.flying.Store(e.flying.Load() + int64(taken))
	if !e.pace.top() {
		e.measure()
	}
	short := taken < len(e.batch)
	e.batch, e.turns = e.batch[:0], e.turns[:0]
	if short {
		return errShort
	}
	return err
}

// errShort cannot be: there was room.
var errShort = errors.New("the port took less than it had room for")

// measure notes how late the packets of a batch left.
func (e *egress) measure() {
	now := time.Now()
	run := e.times.Run()
	tardy := uint64(0)
	for i := range e.turns {
		late := max(0, now.Sub(e.turns[i]))
		run.Record(uint64(late))
		if late > e.late {
			tardy++
		}
	}
	run.End()
	if tardy > 0 {
		e.tardy.Add(tardy)
	}
}

// kick has the device send. While the interface is down time stands still.
func (e *egress) kick() error {
	err := e.port.Kick()
	switch {
	case errors.Is(err, xdp.ErrInterfaceDown):
		e.refused.Add(1)
		e.rest()
		return nil
	case err != nil:
		return err
	case !e.resting.Load():
		e.goOn()
	}
	return nil
}

// rest notes that nothing can be sent.
func (e *egress) rest() {
	if e.stopped.IsZero() {
		e.stopped = time.Now()
	}
}

// goOn notes that it can again.
func (e *egress) goOn() {
	if e.stopped.IsZero() {
		return
	}
	d := time.Since(e.stopped)
	e.pace.wait(d)
	if e.timed {
		e.due = e.due.Add(d)
	}
	e.paused.Add(uint64(d))
	e.stopped = time.Time{}
}

// reap takes back what the device is done with.
func (e *egress) reap(r *reel) {
	for {
		n := e.port.Reap(e.reaped[:])
		for i := range e.reaped[:n] {
			r.reaped(e.reaped[i].Addr)
		}
		e.giveSeam(e.reaped[:n])
		if n > 0 {
			e.flying.Store(e.flying.Load() - int64(n))
		}
		if n < len(e.reaped) {
			return
		}
	}
}
