package transport

import (
	"fmt"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// handFast does the same as hand, but uses the fast path where it can.
func (e *end) handFast() {
	for i := range e.arrivals {
		if !e.fastReceive(&e.arrivals[i]) {
			e.Receive(e.w.now, e.arrivals[i:i+1])
		}
	}
}

// fastReceive receives a packet through the fast path, and reports whether it could.
func (e *end) fastReceive(a *Arrival) bool {
	if len(a.Payload) > 1 || a.Congested {
		return false
	}
	var payload []byte
	for _, f := range a.Payload {
		payload = e.region.Bytes(f)
	}
	b := make([]byte, wire.MaxHeaderBytes)
	b = append(b[:a.Header.Encode(b)], payload...)
	b = append(b, make([]byte, int(a.Header.Pad)+wire.ICRCBytes)...)
	var h wire.Only
	_, n, ok := h.Decode(b)
	if !ok {
		return false
	}
	p, ok := e.Match(&h, &a.From, n)
	defer e.Publish()
	if !ok || !p.Place(payload) {
		return false
	}
	p.Finish()
	return true
}

// fastPost posts a request through the fast path, puts its packet on the link, and reports whether
// it could.
func (e *end) fastPost(q *QueuePair, r rdma.SendRequest, s rdma.SGE) bool {
	r.SGEs = 1
	p, ok := q.TrySend(&r, []rdma.SGE{s}, 2048)
	if !ok {
		return false
	}
	h, payload := &p.Header, p.Payload
	b := make([]byte, e.template.Bytes()+h.HeaderBytes()+len(payload)+int(h.Pad)+wire.ICRCBytes)
	e.id++
	n := e.template.Put(b, e.id, len(b)-e.template.Bytes())
	n += h.Encode(b[n:])
	n += copy(b[n:], payload)
	wire.Begin(b[e.template.Network():n]).Finish(b[n:], h.Pad)
	e.w.link.carry(e.w.now, 1-e.index, b)
	p.Finish()
	e.Transmitted(1)
	return true
}

// TestFastPath: messages in one packet give the same completions, bytes and counters on the fast
// path as on the normal path.
func TestFastPath(t *testing.T) {
	var told [2]string
	for i, short := range []bool{false, true} {
		w := newWorld(t, 1, Config{Hold: 4})
		w.short = short
		a, b := w.pair(options{psn: mask24 - 5, inline: 256, quiet: true})
		for n, size := range []int{0, 1, 3, 64, 255, 256, 1023, 1024} {
			for _, op := range []rdma.Op{rdma.Send, rdma.Write} {
				told[i] += w.only(a, b, rdma.SendRequest{ID: uint64(n), Op: op, Flags: rdma.Flags(n%2)*rdma.Signaled | rdma.Flags(n/2%2)*rdma.Solicited}, size)
			}
		}
		told[i] += w.only(a, b, rdma.SendRequest{ID: 50, Op: rdma.Send, Flags: rdma.Inline | rdma.Signaled}, 200)
		for _, e := range w.ends {
			told[i] += fmt.Sprintln(e.counts, e.drops)
		}
		w.clean()
	}
	if told[0] != told[1] {
		t.Errorf("the longer way:\n%s\nthe shorter:\n%s", told[0], told[1])
	}
}

// only sends a message and returns the completions at both ends as text.
func (w *world) only(a, b *QueuePair, r rdma.SendRequest, size int) string {
	from, to := w.ends[0], w.ends[1]
	want := from.fill(0, size, byte(r.ID))
	clear(to.memory(0, 2048))
	if r.Op == rdma.Send {
		receiveInto(w.t, b, r.ID, to.sge(7, size/2), to.sge(7+size/2, 1024))
	}
	r.RemoteAddr, r.RKey = to.base+7, to.key
	if w.short {
		if !from.fastPost(a, r, from.sge(0, size)) {
			w.t.Errorf("%v of %d bytes: refused", r.Op, size)
		}
		clear(from.memory(0, size)) // the payload was copied inline, or has left
		copy(from.memory(0, size), want)
	} else {
		send(w.t, a, r, from.sge(0, size))
	}
	w.run(20 * time.Microsecond)
	same(w.t, "message", to.memory(7, size), want)
	said := fmt.Sprintf("%v %d:", r.Op, size)
	for _, e := range w.ends {
		for i := range e.done {
			said += " " + show(&e.done[i])
		}
		e.done = e.done[:0]
	}
	return said + "\n"
}

// TestNotOnly: the fast path refuses every request and packet that it cannot handle, and changes
// nothing.
func TestNotOnly(t *testing.T) {
	w := newWorld(t, 1, Config{Window: 2})
	a, b := w.pair(options{psn: 7})
	lender, _ := w.pair(options{loans: 8})
	from, to := w.ends[0], w.ends[1]
	s := from.sge(0, 64)
	for what, r := range map[string]rdma.SendRequest{"READ": {Op: rdma.Read}, "fenced": {Op: rdma.Write, Flags: rdma.Fence}, "immediate": {Op: rdma.SendImmediate},
		"inline, of which there is none": {Op: rdma.Write, Flags: rdma.Inline}} {
		refused(t, a, what, r, s)
	}
	refused(t, a, "too long", rdma.SendRequest{}, from.sge(0, 1025))
	refused(t, a, "of nobody's memory", rdma.SendRequest{}, rdma.SGE{Addr: s.Addr, Length: 1, LKey: 77})
	refused(t, a, "without an element", rdma.SendRequest{})
	before := fmt.Sprint(b.responder)
	good := wire.Only{Write: true, DestQPN: b.qpn, PSN: 7, VA: to.base, RKey: to.key, DMALength: 3}
	for what, change := range map[string]func(h *wire.Only){
		"ahead": func(h *wire.Only) { h.PSN++ }, "behind": func(h *wire.Only) { h.PSN-- }, "no queue pair": func(h *wire.Only) { h.DestQPN++ }, "wrong key": func(h *wire.Only) { h.RKey++ },
		"wrong length": func(h *wire.Only) { h.DMALength++ }, "elsewhere": func(h *wire.Only) { h.VA += extentSize }, "no receive": func(h *wire.Only) { h.Write = false },
		"of a lender": func(h *wire.Only) { h.DestQPN, h.PSN, h.Write = lender.qpn, lender.expected, false },
	} {
		h := good
		b.alive, lender.alive = true, true
		change(&h)
		if p, ok := to.Match(&h, &from.gid, 3); ok && p.Place([]byte("abc")) {
			t.Errorf("%s: taken", what)
		}
	}
	_, elsewhere := to.Match(&good, &to.gid, 3)
	_, long := to.Match(&good, &from.gid, 1025)
	if elsewhere || long || fmt.Sprint(b.responder) != before {
		t.Errorf("taken from elsewhere, or too long, or something changed: %+v", b.responder)
	}
	for range 2 {
		if !from.fastPost(a, rdma.SendRequest{Op: rdma.Write, RemoteAddr: to.base, RKey: to.key}, s) {
			t.Error("a message in one packet is refused")
		}
	}
	refused(t, a, "beyond the window", rdma.SendRequest{}, s)
	send(t, a, rdma.SendRequest{RemoteAddr: to.base, RKey: to.key}, s)
	refused(t, a, "behind one that waits", rdma.SendRequest{}, s)
	w.run(time.Millisecond)
	from.want(t, "0 WRITE", "0 WRITE", "0 WRITE")
}

func refused(t *testing.T, q *QueuePair, what string, r rdma.SendRequest, sges ...rdma.SGE) {
	t.Helper()
	r.SGEs = 1
	if _, ok := q.TrySend(&r, sges, 2048); ok {
		t.Errorf("%s: sent", what)
	}
}
