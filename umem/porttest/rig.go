package porttest

import (
	"slices"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/umem"
)

// parcel is the suite's record of a frame inside a port.
type parcel struct {
	frame  umem.Frame
	msg    message // of a sent frame, or of one supplied to a device that stores
	offset int     // in the message
	token  uint64
	spoilt bool
}

// reporter is what both a test and a rapid property report to.
type reporter interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// rig is a Link under test, and the model of where every frame is.
type rig struct {
	reporter
	*Link
	reg  *umem.Region
	hand []uint64 // starts of the frames in the worker's holder, poisoned
	lent int      // frames of the worker's holder that a verb is being offered

	supplied map[uint64]parcel // by the frame's start
	sent     map[uint64]parcel // by the address sent
	undone   map[uint64]int    // frames not yet reaped, by message number
	stored   []message         // completely reaped and not yet requested

	next   uint64 // number of the next message
	moved  int    // frames that have changed owner so far
	tokens uint64

	// On a network:
	due    uint64          // number of the next message to arrive
	never  map[uint64]bool // numbers that will not arrive
	lossy  bool            // messages may be lost, in a case that overloads the device
	passed map[uint64]bool // numbers that later ones overtook, on a device that Swaps
	landed int             // supplied frames that messages in flight will use
	flying int             // messages sent that have not arrived
	part   []byte          // the received bytes of the message that is arriving
}

// newRig opens a link and takes as many frames as the suite will use.
func newRig(t testing.TB, open Opener) *rig {
	t.Helper()
	l := open(t)
	if err := l.complete(); err != nil {
		t.Fatal(err)
	}
	g := &rig{reporter: t, Link: l, reg: l.region(), never: map[uint64]bool{}}
	g.forget()
	g.stock()
	return g
}

// forget removes everything inside the ports from the model.
func (g *rig) forget() {
	g.supplied, g.sent, g.undone = map[uint64]parcel{}, map[uint64]parcel{}, map[uint64]int{}
	g.stored, g.part, g.landed, g.flying, g.due = nil, nil, 0, 0, g.next
	g.passed = map[uint64]bool{}
}

// stock takes frames from the pool until there are as many as the suite needs.
func (g *rig) stock() {
	g.Helper()
	need := g.Receiver.Limits().Supply + g.Sender.Limits().Send + Spare
	fs := make([]umem.Frame, need-len(g.hand))
	if got := g.Worker.Take(fs); got < len(fs) {
		g.Fatalf("the pool had %d of %d frames that the suite needs: open a larger region", got, len(fs))
	}
	for _, f := range fs {
		g.keep(f.Addr)
	}
}

// finish ends a case: both ports close, and no frame may be missing.
func (g *rig) finish() {
	g.Helper()
	g.audit()
	g.closePorts()
	for _, start := range g.hand {
		g.Worker.Give([]umem.Frame{{Addr: start}})
	}
	g.hand = nil
	g.audit()
}

func (g *rig) closePorts() {
	g.Helper()
	if err := g.Sender.Close(); err != nil {
		g.Fatalf("Close of the sender: %v", err)
	}
	if err := g.Receiver.Close(); err != nil {
		g.Fatalf("Close of the receiver: %v", err)
	}
}

// keep poisons a frame and adds it to the worker's frames.
func (g *rig) keep(start uint64) {
	poison(g.reg, start)
	g.hand = append(g.hand, start)
}

// lend takes the worker's frame that has not been used for the longest time.
func (g *rig) lend() uint64 {
	g.Helper()
	if len(g.hand) == 0 {
		g.Fatal("no frame in hand: frames have been lost")
	}
	start := g.hand[0]
	g.hand = g.hand[1:]
	g.lent++
	return start
}

// token gives a frame's side entry a unique token.
func (g *rig) token(f umem.Frame) uint64 {
	g.tokens++
	g.reg.Side(f).Token = g.tokens
	return g.tokens
}

// empties returns n frames to supply to a network.
func (g *rig) empties(n int) []parcel {
	out := make([]parcel, n)
	for i := range out {
		f := umem.Frame{Addr: g.lend(), Len: g.reg.FrameSize()}
		out[i] = parcel{frame: f, token: g.token(f)}
	}
	return out
}

// compose makes the frames of the next message to send.
func (g *rig) compose() []parcel {
	out := g.frames(message{g.Link, g.next})
	g.next++
	for i, p := range out {
		p.msg.write(g.reg.Bytes(p.frame), p.offset)
		if i < len(out)-1 {
			out[i].frame.Options |= umem.More
		}
	}
	return out
}

// request makes the frames for reading a stored message.
func (g *rig) request(m message) []parcel { return g.frames(m) }

// frames makes views of the worker's frames for each piece of a message.
func (g *rig) frames(m message) []parcel {
	var out []parcel
	offset := 0
	for _, n := range m.cuts() {
		f := umem.Frame{Addr: g.lend() + uint64(g.Offset), Len: uint32(n)}
		p := parcel{msg: m, offset: offset, token: g.token(f)}
		if g.Prepare != nil {
			g.Prepare(m.slot(), offset, &f)
		}
		p.frame = f
		out = append(out, p)
		offset += n
	}
	return out
}

// putBack returns frames that a port did not take to the worker.
func (g *rig) putBack(ps []parcel) {
	for _, p := range ps {
		start, _ := g.reg.Start(p.frame)
		g.keep(start)
	}
	g.lent -= len(ps)
}

func framesOf(ps []parcel) []umem.Frame {
	fs := make([]umem.Frame, len(ps))
	for i := range ps {
		fs[i] = ps[i].frame
	}
	return fs
}

// supply calls the verb, checks its behavior and moves the frames in the model.
func (g *rig) supply(ps []parcel) int {
	g.Helper()
	n := g.hand2port("Supply", g.Receiver.Supply, ps)
	for _, p := range ps[:n] {
		start, _ := g.reg.Start(p.frame)
		g.supplied[start] = p
	}
	if limit := g.Receiver.Limits().Supply; len(g.supplied) > limit {
		g.Fatalf("Supply took %d frames, the port now holds %d, its limit is %d", n, len(g.supplied), limit)
	}
	return n
}

// send is supply for messages.
func (g *rig) send(ps []parcel) int {
	g.Helper()
	n := g.hand2port("Send", g.Sender.Send, ps)
	if n > 0 && ps[n-1].frame.Continues() {
		g.Fatalf("Send took %d of %d frames and so part of a message: the last has More set", n, len(ps))
	}
	for _, p := range ps[:n] {
		g.sent[p.frame.Addr] = p
		g.undone[p.msg.seq]++
		if !g.Stored && !p.frame.Continues() && !p.spoilt {
			g.landed += g.landing(p.msg.size())
			g.flying++
		}
	}
	if limit := g.Sender.Limits().Send; len(g.sent) > limit {
		g.Fatalf("Send took %d frames, the port now holds %d, its limit is %d", n, len(g.sent), limit)
	}
	return n
}

// hand2port offers frames to a verb that takes them.
func (g *rig) hand2port(verb string, call func([]umem.Frame) int, ps []parcel) int {
	g.Helper()
	fs, before := framesOf(ps), g.Worker.Held()
	offered := slices.Clone(fs)
	n := call(fs)
	if n < 0 || n > len(fs) {
		g.Fatalf("%s returned %d for %d frames", verb, n, len(fs))
	}
	if !slices.Equal(fs, offered) {
		g.Fatalf("%s changed the caller's slice", verb)
	}
	if left := before - g.Worker.Held(); left != int64(n) {
		g.Fatalf("%s took %d frames, but %d left the worker's holder", verb, n, left)
	}
	g.lent -= n
	g.moved += n
	return n
}

// canary fills the rest of dst while a verb returns frames.
var canary = umem.Frame{Addr: ^uint64(0), Len: ^uint32(0), Options: ^uint32(0)}

// port2hand asks a verb for at most room frames.
func (g *rig) port2hand(verb string, call func([]umem.Frame) int, room int) []umem.Frame {
	g.Helper()
	dst, before := make([]umem.Frame, room), g.Worker.Held()
	for i := range dst {
		dst[i] = canary
	}
	n := call(dst)
	if n < 0 || n > room {
		g.Fatalf("%s returned %d for room for %d frames", verb, n, room)
	}
	if slices.ContainsFunc(dst[n:], func(f umem.Frame) bool { return f != canary }) {
		g.Fatalf("%s gave %d frames but wrote beyond them", verb, n)
	}
	if came := g.Worker.Held() - before; came != int64(n) {
		g.Fatalf("%s gave %d frames, but %d came to the worker's holder", verb, n, came)
	}
	g.moved += n
	return dst[:n]
}

// kick calls Kick on both ports. It publishes supplied frames before anything is sent.
func (g *rig) kick() {
	g.Helper()
	if err := g.Receiver.Kick(); err != nil {
		g.Fatalf("Kick of the receiver: %v", err)
	}
	if err := g.Sender.Kick(); err != nil {
		g.Fatalf("Kick of the sender: %v", err)
	}
}

// until repeats a step, with kicks, until the step reports that it is done. It sleeps if the step
// moved no frame.
func (g *rig) until(what string, step func() bool) {
	g.Helper()
	for deadline, late := time.Now().Add(g.Timeout), false; ; late = time.Now().After(deadline) {
		before := g.moved
		if step() {
			return
		}
		if late {
			g.Fatalf("%s: nothing more within %v (%d frames sent and not reaped, %d supplied and not received, message %d due)",
				what, g.Timeout, len(g.sent), len(g.supplied), g.due)
		}
		g.kick()
		if g.moved == before {
			time.Sleep(20 * time.Microsecond)
		}
	}
}

// count compares the worker's holder with the model.
func (g *rig) count() {
	g.Helper()
	if held, want := g.Worker.Held(), int64(len(g.hand)+g.lent); held != want {
		g.Fatalf("the worker's holder has %d frames, the calls so far leave it %d", held, want)
	}
}

// audit compares the model, the holders and the region's records, and checks the bytes of every
// frame that no port holds.
func (g *rig) audit() {
	g.Helper()
	g.count()
	if _, err := g.reg.Audit(); err != nil {
		g.Fatal(err)
	}
	for _, start := range g.hand {
		if err := poisoned(g.reg, start, 0, uint64(g.reg.FrameSize())); err != nil {
			g.Fatalf("a frame no port holds: %v", err)
		}
	}
}
