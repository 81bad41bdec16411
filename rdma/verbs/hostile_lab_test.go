//go:build lab && verbs && cgo

package verbs

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
)

// hostile is a WritePort with a queue pair as its peer that says what it likes.
type hostile struct {
	*portBench
	port *rdma.WritePort
	end  *end
}

func (p *portBench) hostile(s writeShape) *hostile {
	p.t.Helper()
	h := &hostile{portBench: p}
	c := p.writeConfig("attacked", s)
	h.end = p.end(config(rdma.RC))
	h.end.connect(c.QueuePair.QPN())
	p.connectTo(c.QueuePair, h.end.qp.QPN(), 0)
	for n := range uint64(8) {
		h.end.receive(1000+n, p.sge(h.control(n), 512))
	}
	h.port = p.openWrite(c)
	return h
}

// control is where the queue pair has a buffer: in the last frames of the region, which
// nobody takes.
func (h *hostile) control(n uint64) uint64 { return h.region.Size() - 4096*(1+n) }

// granted is what the port told of one slot.
type granted struct {
	slot, rkey, length uint32
	addr               uint64
}

// credits supplies frames and reads the credits for them.
func (h *hostile) credits(n int) (cs []granted) {
	h.t.Helper()
	h.supply(h.port, n)
	c := h.end.want(1000, rdma.Success)
	b := h.region.At(h.control(0), uint64(c.Length))
	for b = b[8:]; len(b) >= 24; b = b[24:] {
		cs = append(cs, granted{binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[16:]), binary.BigEndian.Uint64(b[8:])})
	}
	if len(cs) != n {
		h.t.Fatalf("%d credits, want %d", len(cs), n)
	}
	return cs
}

// write writes with an immediate, and wants a status.
func (h *hostile) write(c granted, slot, length uint32, want rdma.Status) {
	h.t.Helper()
	r := rdma.SendRequest{ID: 7, Op: rdma.WriteImmediate, Flags: rdma.Signaled, RemoteAddr: c.addr, RKey: c.rkey}
	binary.BigEndian.PutUint32(r.Immediate[:], slot)
	h.end.send(r, h.sge(h.control(0), length))
	h.end.want(7, want)
}

// over wants the connection to end, and all frames back.
func (h *hostile) over(supplied int, want error) {
	h.t.Helper()
	fs := take(h.t, "the frames supplied", supplied, h.port, h.port.Recv)
	wantErr(h.t, "supplied", fs, unix.ECANCELED)
	h.worker.Give(fs)
	h.wantOver(h.port, want)
	h.t.Log(h.port.Cause())
}

// TestWriteHostile: a peer that says or does what makes no sense is the end of the
// connection, and of no more.
func TestWriteHostile(t *testing.T) {
	newPortBench(t).run(map[string]func(*portBench){"immediate": writeHostileImmediate, "twice": writeHostileTwice, "credits": writeHostileCredits,
		"long": writeHostileLong, "revoked": writeRevoked, "gone": writeGoneCredit})
}

// writeHostileImmediate: immediates that make no sense.
func writeHostileImmediate(p *portBench) {
	t := p.t
	for name, attack := range map[string]func(h *hostile, c []granted){
		"slot that is not there":  func(h *hostile, c []granted) { h.write(c[0], writeSlots, 10, rdma.Success) },
		"huge slot":               func(h *hostile, c []granted) { h.write(c[0], 1<<32-1, 10, rdma.Success) },
		"slot that has no credit": func(h *hostile, c []granted) { h.write(c[0], unused(c), 10, rdma.Success) },
		"SEND with immediate": func(h *hostile, c []granted) {
			h.end.send(rdma.SendRequest{ID: 7, Op: rdma.SendImmediate, Flags: rdma.Signaled}, h.sge(h.control(0), 32))
			h.end.want(7, rdma.Success)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := p.on(t).hostile(writeShape{})
			attack(h, h.credits(4))
			h.over(4, rdma.ErrPeer)
		})
	}
}

// unused is a slot without a credit.
func unused(cs []granted) uint32 {
	for n := uint32(0); ; n++ {
		free := true
		for _, c := range cs {
			free = free && c.slot != n
		}
		if free {
			return n
		}
	}
}

// writeHostileTwice: a credit is good once, and the messages that came before are
// received.
func writeHostileTwice(p *portBench) {
	t := p.t
	h := p.hostile(writeShape{})
	c := h.credits(4)
	h.write(c[0], c[0].slot, 100, rdma.Success)
	h.write(c[0], c[0].slot, 100, rdma.Success)
	fs := take(t, "the message, and the frames supplied", 4, h.port, h.port.Recv)
	if fs[0].Len != 100 || fs[0].Err() != nil {
		t.Errorf("%+v", fs[0])
	}
	wantErr(t, "supplied", fs[1:], unix.ECANCELED)
	h.worker.Give(fs)
	h.wantOver(h.port, rdma.ErrPeer)
}

// writeHostileCredits: credits that make no sense.
func writeHostileCredits(p *portBench) {
	t := p.t
	credit := func(slot, length uint32) []byte {
		b := make([]byte, 32)
		copy(b, "UC\x01\x01")
		binary.BigEndian.PutUint32(b[8:], slot)
		binary.BigEndian.PutUint32(b[24:], length)
		return b
	}
	for name, b := range map[string][]byte{
		"garbage": []byte("GET / HTTP/1.1\r\n\r\n"), "nothing": {}, "version": append([]byte("UC\x02\x01"), credit(0, 4096)[4:]...),
		"more than there are": append([]byte("UC\x01\x15"), credit(0, 4096)[4:]...), "slot": credit(writeSlots, 4096), "short": credit(0, writeMessage-1),
		"two of one slot": append(append([]byte("UC\x01\x02"), credit(3, 4096)[4:]...), credit(3, 4096)[8:]...),
	} {
		t.Run(name, func(t *testing.T) {
			h := p.on(t).hostile(writeShape{strict: true})
			h.credits(4)
			copy(h.region.At(h.control(0), 512), b)
			h.end.send(rdma.SendRequest{ID: 7, Op: rdma.Send, Flags: rdma.Signaled}, h.sge(h.control(0), uint32(len(b))))
			h.end.want(7, rdma.Success)
			h.over(4, rdma.ErrPeer)
		})
	}
}

// writeHostileLong: more than the slot has, and more than a receive for credits.
func writeHostileLong(p *portBench) {
	t := p.t
	t.Run("message", func(t *testing.T) {
		h := p.on(t).hostile(writeShape{register: true})
		c := h.credits(1)[0]
		h.write(c, c.slot, c.length+1, rdma.RemoteAccess)
	})
	t.Run("message and a device without bounds", func(t *testing.T) {
		h := p.on(t).hostile(writeShape{})
		c := h.credits(1)[0]
		h.write(c, c.slot, c.length+1, rdma.Success)
		h.over(1, rdma.ErrPeer)
	})
	t.Run("credits", func(t *testing.T) {
		h := p.on(t).hostile(writeShape{})
		h.end.send(rdma.SendRequest{ID: 7, Op: rdma.Send, Flags: rdma.Signaled}, h.sge(h.control(0), 513))
		if c := h.end.completion(); c.Status == rdma.Success {
			t.Error("513 bytes were taken")
		}
		testFails(t, h.port)
	})
}

// testFails kicks until the port says that its connection is over.
func testFails(t *testing.T, p *rdma.WritePort) {
	t.Helper()
	take(t, "the end of the connection", 0, p, p.Recv)
	for range 1000 {
		if p.Kick() != nil {
			return
		}
	}
	t.Error("the connection is not over")
}

// writeRevoked: what a peer can still do with a grant after the message in it was
// received: with Strict nothing, else write.
func writeRevoked(p *portBench) {
	t := p.t
	for _, s := range []writeShape{{}, {strict: true}, {strict: true, register: true}} {
		t.Run(s.name(), func(t *testing.T) {
			h := p.on(t).hostile(s)
			c := h.credits(2)[0]
			h.write(c, c.slot, 100, rdma.Success)
			fs := take(t, "the message", 1, h.port, h.port.Recv)
			defer h.worker.Give(fs)
			want := rdma.Success
			if s.strict {
				want = rdma.RemoteAccess
			}
			h.end.send(rdma.SendRequest{ID: 8, Op: rdma.Write, Flags: rdma.Signaled, RemoteAddr: c.addr, RKey: c.rkey}, h.sge(h.control(0), 10))
			h.end.want(8, want)
		})
	}
}

// writeGoneCredit: a peer's credit whose grant is revoked is the end for who writes.
func writeGoneCredit(p *portBench) {
	t := p.t
	h := p.hostile(writeShape{})
	b := make([]byte, 32)
	copy(b, "UC\x01\x01")
	binary.BigEndian.PutUint32(b[12:], 0xdead00) // an rkey that never was
	binary.BigEndian.PutUint32(b[24:], 4096)
	copy(h.region.At(h.control(0), 512), b)
	h.end.send(rdma.SendRequest{ID: 7, Op: rdma.Send, Flags: rdma.Signaled}, h.sge(h.control(0), 32))
	h.end.want(7, rdma.Success)
	h.supply(h.port, 3)
	if n := h.port.Send(h.frames(2, 100)); n != 2 {
		t.Fatalf("Send took %d", n)
	}
	fs := take(t, "the frames sent", 2, h.port, h.port.Reap)
	wantErr(t, "the one for the credit", fs[:1], unix.EACCES)
	wantErr(t, "the one behind it", fs[1:], unix.ECANCELED)
	h.worker.Give(fs)
	h.over(3, rdma.RemoteAccess)
}
