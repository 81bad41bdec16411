package transport

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// victim is an end that receives arbitrary packets.
type victim struct {
	w     *world
	pairs []*QueuePair
	small uint32 // the key of 4096 bytes that the peer may reach
	was   []byte // contents of the registered memory before
}

// newVictim makes an end where the peer may reach a part of the memory.
func newVictim(t tb) *victim {
	w := newWorld(t, 1, Config{Hold: 3})
	e := w.ends[0]
	v := &victim{w: w, was: e.fill(0, extentSize, 1)}
	var err error
	v.small, err = e.keys.Register(testDomain, e.base+8192, 4096, rdma.LocalWrite|rdma.Remote)
	must(t, err)
	return v
}

// begin makes queue pairs of each transport, with requests outstanding and receives posted.
func (v *victim) begin(t tb) {
	w, e := v.w, v.w.ends[0]
	w.t = t
	copy(e.memory(0, extentSize), v.was)
	for _, o := range []options{{}, {loans: 6}, {transport: rdma.UC}, {transport: rdma.UD}, {transport: rdma.UD, loans: 2}} {
		a, _ := w.pair(o)
		a.limit = 3
		v.pairs = append(v.pairs, a)
		for i := range 2 {
			if a.loans == nil {
				receiveInto(t, a, uint64(i), e.sge(i*2048, 2000))
			}
		}
		if a.config.Transport == rdma.RC {
			send(t, a, rdma.SendRequest{Op: rdma.Send}, e.sge(64<<10, 3000))
			send(t, a, rdma.SendRequest{Op: rdma.Read}, e.sge(4096, 3000))
			send(t, a, rdma.SendRequest{Op: rdma.FetchAdd}, e.sge(7096, 8))
		}
	}
	e.Progress(w.now, e.out[:])
}

// end closes the queue pairs and checks that no frame is lost.
func (v *victim) end(t tb) {
	for _, e := range v.w.ends {
		for place := range e.slots {
			if q := e.slots[place].pair; q != nil {
				q.Close()
			}
		}
	}
	e := v.w.ends[0]
	e.collect()
	if e.lent.Held() != 0 || len(e.empty) != ringFrames {
		t.Fatalf("%d frames are lent, and %d in the ring", e.lent.Held(), len(e.empty))
	}
	v.pairs, e.done, e.got = v.pairs[:0], e.done[:0], e.got[:0]
}

// throw cuts input into packets. Each begins with four bytes: the queue pair, the distance from the
// expected packet number, and the length. Headers and payload follow in wire format. throw corrects
// the fields that would make the engine drop the packet at once.
func (v *victim) throw(input []byte) {
	e := v.w.ends[0]
	for len(input) > 4 {
		which, off, n := input[0], int8(input[1]), int(binary.LittleEndian.Uint16(input[2:])%1200)
		input = input[4:]
		n = min(n, len(input))
		v.throwOne(e, v.pairs[int(which)%len(v.pairs)], which, int(off), bytes.Clone(input[:n]))
		input = input[n:]
		v.w.now = v.w.now.After(20 * time.Microsecond)
		if e.Tick(v.w.now); which&0x20 != 0 {
			e.Release()
		}
		e.Transmitted(e.Progress(v.w.now, e.out[:]))
		e.collect()
		e.poll()
	}
}

func (v *victim) throwOne(e *end, q *QueuePair, which byte, off int, b []byte) {
	var a Arrival
	n, m := a.Header.Decode(b)
	if m != wire.WellFormed || n > len(b) {
		return
	}
	h := &a.Header
	if which&0x40 == 0 {
		h.DestQPN, h.PKey = q.Number(), wire.DefaultPKey
		if h.PSN = q.expected.Add(off / 8); h.Opcode.IsResponse() {
			h.PSN = q.una.Add(off / 8)
		}
		if h.QKey = 0x1111; h.RKey%2 == 0 {
			h.RKey = v.small
		}
		h.VA = e.base + 8192 + h.VA%8192 - 2048
	}
	if which&0x80 == 0 {
		a.From = v.w.ends[1].gid
	}
	if len(e.empty) < 2 {
		return
	}
	var env wire.Envelope
	e.w.short = which&0x10 != 0
	e.place(&a, &env, make([]byte, 40), b[n:])
	e.hand()
}

// check checks that no byte outside of the granted memory has changed.
func (v *victim) check(t tb) {
	e := v.w.ends[0]
	now := e.memory(0, extentSize)
	if !bytes.Equal(now[12288:], v.was[12288:]) || !bytes.Equal(now[7104:8192], v.was[7104:8192]) {
		t.Fatal("memory changed beside what the peer may reach")
	}
	if second := e.data[e.base+extentSize:][:extentSize]; bytes.Count(second, second[:1]) != len(second) {
		t.Fatal("memory changed that is not registered")
	}
}

// FuzzReceive: arbitrary packets to queue pairs of all transports write nothing outside of the
// granted memory, lose no frame and cause no panic.
func FuzzReceive(f *testing.F) {
	for o := range 256 {
		h := wire.Header{Opcode: wire.Opcode(o), RKey: 2, DMALength: 1024, AckReq: true, Syndrome: wire.ACK}
		b := make([]byte, wire.MaxHeaderBytes)
		if n := h.Encode(b); n > 0 {
			for which := range byte(5) {
				one := append([]byte{which, 0}, binary.LittleEndian.AppendUint16(nil, uint16(n+1024))...)
				one = append(append(one, b[:n]...), make([]byte, 1024)...)
				f.Add(append(bytes.Clone(one), one...))
			}
		}
	}
	v := newVictim(f)
	f.Fuzz(func(t *testing.T, input []byte) {
		v.begin(t)
		v.throw(input)
		v.check(t)
		v.end(t)
	})
}
