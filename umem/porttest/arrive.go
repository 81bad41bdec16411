package porttest

import (
	"bytes"

	"github.com/unifiedd/unifiedd/umem"
)

// reap takes drained frames and checks each. It returns how many there were.
func (g *rig) reap(room int) int {
	g.Helper()
	fs := g.port2hand("Reap", g.Sender.Reap, room)
	for _, f := range fs {
		p, ok := g.sent[f.Addr]
		if !ok {
			g.Fatalf("Reap gave the frame at %#x, which was not sent or was reaped before", f.Addr)
		}
		delete(g.sent, f.Addr)
		g.checkOutcome("Reap", p, f)
		g.checkDrained(p)
		g.done(p)
		start, _ := g.reg.Start(f)
		g.keep(start)
	}
	return len(fs)
}

// done records that one frame of a message was reaped.
func (g *rig) done(p parcel) {
	g.undone[p.msg.seq]--
	if g.undone[p.msg.seq] > 0 {
		return
	}
	delete(g.undone, p.msg.seq)
	if g.Stored && !p.spoilt {
		g.stored = append(g.stored, p.msg)
	}
}

// checkOutcome compares a frame's Failed bit and token with those that the suite passed in.
func (g *rig) checkOutcome(verb string, p parcel, f umem.Frame) {
	g.Helper()
	if err := f.Err(); p.spoilt != (err != nil) {
		g.Fatalf("%s gave the frame at %#x with outcome %v; it was spoilt: %v", verb, f.Addr, err, p.spoilt)
	} else if err != nil {
		g.checkErrno(verb, err)
	}
	if token := g.reg.Side(f).Token; token != p.token {
		g.Fatalf("%s gave the frame at %#x with token %d, it went with %d", verb, f.Addr, token, p.token)
	}
}

// checkDrained checks that sending did not change the frame.
func (g *rig) checkDrained(p parcel) {
	g.Helper()
	if p.spoilt {
		return
	}
	start, room := g.reg.Start(p.frame)
	head := p.frame.Addr - start
	for _, err := range []error{
		poisoned(g.reg, start, 0, head),
		p.msg.check(g.reg.Bytes(p.frame), p.offset),
		poisoned(g.reg, start, head+uint64(p.frame.Len), room),
	} {
		if err != nil {
			g.Fatalf("a sent frame came back changed: %v", err)
		}
	}
}

// recv takes full frames and checks each. It returns how many there were.
func (g *rig) recv(room int) int {
	g.Helper()
	fs := g.port2hand("Recv", g.Receiver.Recv, room)
	for _, f := range fs {
		g.arrive(f)
	}
	return len(fs)
}

// arrive checks one received frame and adds it to the worker's frames.
func (g *rig) arrive(f umem.Frame) {
	g.Helper()
	if f.Addr >= g.reg.Size() {
		g.Fatalf("Recv gave a frame at %#x, outside the region of %#x bytes", f.Addr, g.reg.Size())
	}
	start, room := g.reg.Start(f)
	p, ok := g.supplied[start]
	if !ok {
		g.Fatalf("Recv gave the frame at %#x, which was not supplied or was received before", f.Addr)
	}
	delete(g.supplied, start)
	if f.Addr+uint64(f.Len) > start+room {
		g.Fatalf("Recv gave %d bytes at %#x, beyond the frame's end at %#x", f.Len, f.Addr, start+room)
	}
	g.checkOutcome("Recv", p, f)
	g.checkSurroundings(f, start, room)
	switch {
	case p.spoilt:
	case g.Stored:
		g.checkStored(p, f)
	default:
		g.checkStream(f)
	}
	g.keep(start)
}

// checkSurroundings checks that only the view has changed, and what the device may write in front of it.
func (g *rig) checkSurroundings(f umem.Frame, start, room uint64) {
	g.Helper()
	head, scratch := f.Addr-start, uint64(g.Scratch)
	if f.Err() != nil {
		return
	}
	if err := poisoned(g.reg, start, 0, head-min(head, scratch)); err != nil {
		g.Fatalf("in front of a received view: %v", err)
	}
	if err := poisoned(g.reg, start, head+uint64(f.Len), room); err != nil {
		g.Fatalf("behind a received view: %v", err)
	}
}

// checkStored compares a piece that was read back with the requested one.
func (g *rig) checkStored(p parcel, f umem.Frame) {
	g.Helper()
	if f.Addr != p.frame.Addr || f.Len != p.frame.Len {
		g.Fatalf("Recv gave %d bytes at %#x, asked for were %d at %#x", f.Len, f.Addr, p.frame.Len, p.frame.Addr)
	}
	if err := p.msg.check(g.reg.Bytes(f), p.offset); err != nil {
		g.Fatalf("read back: %v", err)
	}
}

// checkStream adds a frame to the message that is arriving. It compares the message once it is complete.
func (g *rig) checkStream(f umem.Frame) {
	g.Helper()
	g.part = append(g.part, g.reg.Bytes(f)...)
	if f.Continues() {
		return
	}
	whole := g.part
	g.part = nil
	if g.Noisy && !bytes.HasPrefix(whole, g.Header) {
		return
	}
	m, err := g.read(whole)
	if err != nil {
		g.Fatalf("received: %v (message %d was due)", err, g.due)
	}
	g.checkTurn(m.seq)
	g.landed -= g.landing(m.size())
	g.flying--
}

// checkTurn checks that the message is the next to arrive.
func (g *rig) checkTurn(seq uint64) {
	g.Helper()
	for g.never[g.due] {
		g.due++
	}
	switch {
	case seq == g.due:
		g.due++
	case g.lossy && seq > g.due && seq < g.next:
		for ; g.due < seq; g.due++ {
			g.passed[g.due] = g.Swaps && !g.never[g.due]
		}
		g.due++
	case g.passed[seq]:
		delete(g.passed, seq)
	default:
		g.Fatalf("message %d arrived, message %d was due: lost, doubled or out of order", seq, g.due)
	}
}
