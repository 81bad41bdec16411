package attach

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/umem"
)

// MaxEntries is the largest number of entries of a ring, a power of two; minEntries the smallest.
const (
	MaxEntries = 4096
	minEntries = 64
)

// EndConfig configures an End.
type EndConfig struct {
	Flow    string
	Program string // name of the program that may open a port
	Role    wire.Role
	Entries int                      // of each ring: a power of two
	Longest uint32                   // the longest message in bytes
	Worker  *umem.Holder             // of the flow's frames
	Do      func(func() error) error // runs a function on the worker's thread
	Events  bool                     // the worker waits for events
	// Next returns the sequence that the flow expects next of a session; from is that with which the program goes on, or
	// 0. It is called on the worker's thread
	// when a port opens, and only while Idle; 0: not known yet, and it is called again.
	Next func(session, from uint64) uint64
	// Idle reports whether the flow has given back all that it got over an earlier port. It is called on the
	// worker's thread. A port opens only then.
	Idle func() bool
	// Ready is called on the worker's thread when a port is to open. An error says why it cannot open yet: the program
	// waits, unless it wraps ErrGiveFirst.
	Ready func() error
	// Closed is called on the worker's thread when a port has closed: its frames are with Worker again.
	Closed func(back []umem.Frame)
	// Size and Align are of the file or device that requests are about. Align is wire.Once if no message may come again.
	Size  uint64
	Align uint32
}

// End is the end of a flow at which one program at a time may open a port. Its methods are for the worker's
// thread, except where they say otherwise.
//
// A frame that the program has is with a holder of owner attached. Each time a frame changes hands its generation
// goes up, and an entry of the program must have the current one: so nothing is released or submitted twice.
type End struct {
	config   EndConfig
	hub      *Hub
	program  *Program
	part     *umem.Part // the program's memory for this role
	region   *umem.Region
	frame    uint64 // size of a frame
	attached *umem.Holder
	own      []umem.Frame // frames of this end: all that the program may ever have over it
	gens     []uint32     // by number of the frame in the part

	port     *Port // nil: none is open
	sequence uint64
	batch    [burst]wire.Entry
	one      [1]umem.Frame

	begun  bool // ports may open; under program.mu
	closed bool // no port opens any more; under program.mu
	open   atomic.Bool
	count  endCounters
}

// burst is the most entries that one call takes from a ring.
const burst = 64

// endCounters are written by the worker only.
type endCounters struct{ opened, given, givenBytes, released, taken, takenBytes, out counter.Counter }

// EndStats are counters since the flow began.
type EndStats struct {
	Open              bool
	Opened            uint64 // ports
	Given, GivenBytes uint64 // messages to the program
	Released          uint64 // frames that it gave back
	Taken, TakenBytes uint64 // messages of the program
	Out               uint64 // frames that the program has now
}

// Stats may be called from any goroutine.
func (e *End) Stats() EndStats {
	c := &e.count
	return EndStats{e.open.Load(), c.opened.Load(), c.given.Load(), c.givenBytes.Load(), c.released.Load(), c.taken.Load(), c.takenBytes.Load(), c.out.Load()}
}

// Program returns the program's name.
func (e *End) Program() string { return e.config.Program }

// NewEnd makes the end of a flow, at which ports open after Begin. The caller closes it after the worker has stopped polling
// the flow.
func (h *Hub) NewEnd(c EndConfig) (*End, error) {
	p := h.programs[c.Program]
	if p == nil {
		return nil, fmt.Errorf("there is no program %q in attach.programs", c.Program)
	}
	e := &End{config: c, hub: h, program: p, region: c.Worker.Book().Region()}
	e.frame = uint64(e.region.FrameSize())
	if e.part = p.slice.In; c.Role == wire.Send {
		e.part = p.slice.Out
	}
	if e.part == nil {
		return nil, fmt.Errorf("program %q has no memory to %s: give it %s in attach.programs", c.Program, c.Role, map[bool]string{true: "out", false: "in"}[c.Role == wire.Send])
	}
	e.gens = make([]uint32, e.part.Size()/e.frame)
	var err error
	if e.attached, err = c.Worker.Book().NewHolder(umem.OwnerAttached, "program "+c.Program+" of flow "+c.Flow); err != nil {
		return nil, err
	}
	if err := p.add(e); err != nil {
		e.attached.Close()
		return nil, err
	}
	return e, nil
}

// Begin lets the program open a port. The flow has all that the end's configuration and SetFrames give it, and the worker
// polls it: a program asks at any moment, and a port that opened before would have no frames. It may be called from any
// goroutine.
func (e *End) Begin() {
	e.program.mu.Lock()
	defer e.program.mu.Unlock()
	e.begun = true
}

// Close closes the end's port, and tells the program. It may be called from any goroutine but the worker's.
func (e *End) Close() error {
	err := e.program.remove(e)
	return errors.Join(err, e.config.Do(func() error { e.attached.Close(); return nil }))
}

// Part returns the program's memory for the end's role.
func (e *End) Part() *umem.Part { return e.part }

// SetFrames says which frames the program gets, for a role in which it fills them. They are with Worker.
func (e *End) SetFrames(fs []umem.Frame) {
	e.own = fs
	e.program.mu.Lock()
	defer e.program.mu.Unlock()
	e.program.places[e.config.Flow] = fs
}

// Place returns n frames of the part: those that an end of the same flow had, and then those that no flow had which still is
// there; fewer if there are not so many.
func (e *End) Place(n int, there func(flow string) bool) (fs []umem.Frame) {
	e.program.mu.Lock()
	defer e.program.mu.Unlock()
	had := map[uint64]bool{}
	for flow, place := range e.program.places {
		if !there(flow) {
			delete(e.program.places, flow)
			continue
		}
		for _, f := range place {
			had[f.Addr] = true
		}
	}
	fs = append(fs, e.program.places[e.config.Flow]...)
	for addr := e.part.Base(); addr < e.part.Base()+e.part.Size() && len(fs) < n; addr += e.frame {
		if !had[addr] {
			fs = append(fs, umem.Frame{Addr: addr})
		}
	}
	fs = fs[:min(n, len(fs))]
	e.program.places[e.config.Flow] = fs
	return slices.Clone(fs)
}

// Attached reports whether the program has a port open.
func (e *End) Attached() bool { return e.port != nil && !e.port.broken() }

// install opens a port.
func (e *End) install(p *Port) (next uint64, err error) {
	switch {
	case e.port != nil:
		return 0, wire.Busy
	case e.config.Idle != nil && !e.config.Idle():
		return 0, errNotIdle
	}
	if e.config.Ready != nil {
		if err := e.config.Ready(); err != nil {
			if !errors.Is(err, ErrGiveFirst) {
				err = fmt.Errorf("%w: %w", err, errNotIdle)
			}
			return 0, err
		}
	}
	next = 1
	if e.config.Next != nil {
		if next = e.config.Next(p.session, p.from); next == 0 {
			return 0, errNotKnown
		}
	}
	e.port, e.sequence = p, next
	e.count.opened.Add(1)
	e.open.Store(true)
	if e.config.Role == wire.Send {
		for _, f := range e.own {
			e.pass(f.Addr, wire.Entry{})
		}
		p.publish(wire.RingDone)
	}
	return next, nil
}

// ErrGiveFirst says that a port opens when a program has given a connection. The program does not wait for that: it may be
// the one that is to give it.
var ErrGiveFirst = errors.New("give one, then open the flow")

// errNotIdle says that the flow still works on what came over an earlier port.
var errNotIdle = errors.New("the flow is not idle")

// errNotKnown says that the flow does not know yet how far a session is. The port opens later, as with errNotIdle.
var errNotKnown = fmt.Errorf("the group that keeps the messages does not say how far the session is (look at its members): %w", errNotIdle)

// pass gives a frame that the program may fill to it, and says what became of the last message in it.
func (e *End) pass(addr uint64, say wire.Entry) {
	start := addr &^ (e.frame - 1)
	i := (start - e.part.Base()) / e.frame
	e.gens[i]++
	e.one[0] = umem.Frame{Addr: start}
	e.config.Worker.PassTo(e.attached, e.one[:])
	e.count.out.Add(1)
	say.Offset, say.Length, say.Generation = start-e.part.Base(), uint32(e.frame), e.gens[i]
	e.port.rings[wire.RingDone].Put(&say)
}

// uninstall closes a port. All frames that the program had are with the flow again.
func (e *End) uninstall(p *Port) {
	if e.port != p {
		return
	}
	e.port = nil
	e.open.Store(false)
	var back []umem.Frame
	for i := range e.gens {
		if addr := e.part.Base() + uint64(i)*e.frame; e.attached.Has(addr) {
			back = append(back, umem.Frame{Addr: addr, Len: uint32(e.frame)})
			e.gens[i]++
		}
	}
	e.attached.PassTo(e.config.Worker, back)
	e.count.out.Set(0)
	if e.config.Closed != nil {
		e.config.Closed(back)
	}
}

// checked returns the region's address of an entry's bytes if the program has the frame around them.
func (e *End) checked(entry *wire.Entry) (addr uint64, why wire.Reason) {
	addr = e.part.Base() + entry.Offset
	switch {
	case entry.Offset >= e.part.Size() || !e.attached.Has(addr):
		return 0, wire.BadDescriptor
	case entry.Offset&(e.frame-1)+uint64(entry.Length) > e.frame:
		return 0, wire.BadDescriptor
	case e.gens[entry.Offset/e.frame] != entry.Generation:
		return 0, wire.BadGeneration
	}
	return addr, wire.None
}

// Submitted is a message that the program has submitted, in a frame that is with the flow now. The program can
// still change the bytes.
type Submitted struct {
	Frame    umem.Frame
	Session  uint64
	Sequence uint64
	Stamp    uint64 // of what the message answers, and when the program decided, both in nanoseconds since 1970, as the
	Decided  uint64 // program says; 0: it does not say
}

// Take returns up to len(dst) messages of the program. Each of their frames must be given to Done, while the port
// is open.
func (e *End) Take(dst []Submitted) int {
	p := e.port
	if p == nil || p.broken() {
		return 0
	}
	n := p.take(wire.RingSubmitted, e.batch[:min(len(dst), burst)])
	bytes := uint64(0)
	for i := range n {
		entry := &e.batch[i]
		addr, why := e.checked(entry)
		switch {
		case why != wire.None:
		case entry.Length > e.config.Longest || entry.Length == 0:
			why = wire.TooLong
		case entry.Sequence != e.sequence:
			why = wire.BadSequence
		}
		if why != wire.None {
			p.fail(why)
			n = i
			break
		}
		e.sequence++
		e.gens[entry.Offset/e.frame]++
		e.one[0] = umem.Frame{Addr: addr, Len: entry.Length}
		e.attached.PassTo(e.config.Worker, e.one[:])
		dst[i] = Submitted{e.one[0], p.session, entry.Sequence, entry.Stamp, entry.Position}
		bytes += uint64(entry.Length)
	}
	if n > 0 {
		e.count.taken.Add(uint64(n))
		e.count.takenBytes.Add(bytes)
		e.count.out.Set(e.count.out.Load() - uint64(n))
	}
	return n
}

// Requested is a program's request for blocks.
type Requested struct {
	Sequence uint64
	Offset   uint64 // in the file or device
	Length   uint32
}

// Requests returns up to len(dst) requests of the program, which are in order. Each is answered by Give or Refuse.
func (e *End) Requests(dst []Requested) int {
	p := e.port
	if p == nil || p.broken() {
		return 0
	}
	n := p.take(wire.RingSubmitted, e.batch[:min(len(dst), burst)])
	for i := range n {
		entry := &e.batch[i]
		if entry.Sequence != e.sequence {
			p.fail(wire.BadSequence)
			return i
		}
		e.sequence++
		dst[i] = Requested{entry.Sequence, entry.Position, entry.Length}
	}
	e.count.taken.Add(uint64(n))
	return n
}

// Refuse answers a request without a frame. There must be room.
func (e *End) Refuse(r *Requested, why wire.Reason) {
	if e.port != nil {
		e.port.rings[wire.RingReceived].Put(&wire.Entry{Position: r.Offset, Sequence: r.Sequence, Status: why})
	}
}

// Done gives the frame of a message back to the program, and says what became of the message. If the port has
// closed, the frame stays with the flow.
func (e *End) Done(addr uint64, session, sequence, position uint64, status wire.Reason) {
	if e.port == nil || e.port.session != session {
		return
	}
	e.pass(addr, wire.Entry{Sequence: sequence, Position: position, Status: status})
}

// Room returns how many messages the program may get now.
func (e *End) Room() int {
	p := e.port
	if p == nil || p.broken() {
		return 0
	}
	return min(p.room(wire.RingReceived), p.rings[wire.RingReleased].Len()-int(e.count.out.Load()))
}

// Give gives a frame with a message to the program, which has it until Released returns it. There must be room.
func (e *End) Give(f umem.Frame, position, sequence, stamp uint64) {
	start := f.Addr &^ (e.frame - 1)
	i := (start - e.part.Base()) / e.frame
	e.gens[i]++
	e.one[0] = umem.Frame{Addr: start}
	e.config.Worker.PassTo(e.attached, e.one[:])
	e.port.rings[wire.RingReceived].Put(&wire.Entry{
		Offset: f.Addr - e.part.Base(), Length: f.Len, Generation: e.gens[i], Position: position, Sequence: sequence, Stamp: stamp,
	})
	e.count.given.Add(1)
	e.count.givenBytes.Add(uint64(f.Len))
	e.count.out.Add(1)
}

// Released returns frames that the program has released, whole.
func (e *End) Released(dst []umem.Frame) int {
	p := e.port
	if p == nil || p.broken() {
		return 0
	}
	n := p.take(wire.RingReleased, e.batch[:min(len(dst), burst)])
	for i := range n {
		entry := &e.batch[i]
		addr, why := e.checked(entry)
		if why != wire.None {
			p.fail(why)
			n = i
			break
		}
		e.gens[entry.Offset/e.frame]++
		dst[i] = umem.Frame{Addr: addr &^ (e.frame - 1), Len: uint32(e.frame)}
	}
	e.attached.PassTo(e.config.Worker, dst[:n])
	if n > 0 {
		e.count.released.Add(uint64(n))
		e.count.out.Set(e.count.out.Load() - uint64(n))
	}
	return n
}

// Kick makes what was given visible to the program, and wakes it if it waits.
func (e *End) Kick() {
	p := e.port
	if p == nil || p.broken() {
		return
	}
	ring := wire.RingReceived
	if e.config.Role == wire.Send {
		ring = wire.RingDone
	}
	p.publish(ring)
	p.awake(e.incoming())
	if e.config.Role == wire.Request {
		p.rings[wire.RingReleased].Awake()
	}
}

// incoming is the ring over which the program's entries come.
func (e *End) incoming() int {
	if e.config.Role == wire.Receive {
		return wire.RingReleased
	}
	return wire.RingSubmitted
}

// FD returns a descriptor that becomes readable when the program submits or releases something; -1: there is no
// port, or something has come meanwhile, so that the worker must not wait.
func (e *End) FD() (fd int, wait bool) {
	p := e.port
	if p == nil || p.broken() {
		return -1, true
	}
	wait = p.sleep(e.incoming())
	if e.config.Role == wire.Request { // frames come back, too
		wait = p.sleep(wire.RingReleased) && wait
	}
	return p.wake, wait
}

// fail ends the program for a reason.
func (e *End) Fail(why wire.Reason) {
	if e.port != nil {
		e.port.fail(why)
	}
}

// entries returns how many entries the rings of a port have.
func (e *End) entries(want uint32) uint32 {
	n := uint32(e.config.Entries)
	for want > 0 && n/2 >= max(want, minEntries) && n/2 >= uint32(len(e.own)) {
		n /= 2
	}
	return n
}
