//go:build verbs && cgo

package verbs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
)

// Addresses of the tests' data: the source, and the destination at a safe distance.
const (
	source      = 0
	destination = 4 << 20
	everything  = 8 << 20
)

// TestTransfers: data that one end sends arrives at the other, for each kind of request.
func TestTransfers(t *testing.T) {
	labenv.Guest(t)
	b := newBench(t, everything)
	b.run(map[string]func(*bench){"operations": operations, "pieces": pieces, "inline": inline, "unsignaled": unsignaled, "fence": fence,
		"atomics": atomics, "datagrams": datagrams, "batches": batches})
}

// allSizes returns the sizes of transfers. The short form has no bytes, part of a packet, and more
// packets than can be outstanding at once.
func allSizes() []uint32 {
	if testing.Short() {
		return []uint32{0, 255, 1 << 20}
	}
	return []uint32{0, 1, 255, 4096, 65537, 1 << 20}
}

// operations: every operation that a transport allows works with every size.
func operations(b *bench) {
	for _, c := range []struct {
		transport rdma.Transport
		ops       []rdma.Op
	}{
		{rdma.RC, []rdma.Op{rdma.Send, rdma.SendImmediate, rdma.Write, rdma.WriteImmediate, rdma.Read}},
		{rdma.UC, []rdma.Op{rdma.Send, rdma.SendImmediate, rdma.Write, rdma.WriteImmediate}},
	} {
		b.t.Run(c.transport.String(), func(t *testing.T) {
			b := b.on(t)
			x, y := b.pair(config(c.transport))
			for _, op := range c.ops {
				for _, size := range allSizes() {
					t.Run(fmt.Sprintf("%v/%d", op, size), func(t *testing.T) { x.on(t).transfer(y.on(t), op, size) })
				}
			}
		})
	}
}

// on returns the end for a subtest.
func (e *end) on(t *testing.T) *end {
	of := *e
	of.t, of.b = t, e.b.on(t)
	return &of
}

// transfer moves bytes by one operation of x, and checks them and the completions of both ends.
func (x *end) transfer(y *end, op rdma.Op, size uint32) {
	x.t.Helper()
	b := x.b
	want, got := b.fill(source, size), b.region.At(destination, uint64(size)+1)
	for i := range got {
		got[i] = 0xee
	}
	r := rdma.SendRequest{ID: 3, Op: op, Flags: rdma.Signaled, Immediate: [4]byte{1, 2, 3, 4}, RKey: b.memory.RKey(), RemoteAddr: b.memory.Addr() + destination}
	local := b.sge(source, size)
	if op == rdma.Read {
		local, r.RemoteAddr = b.sge(destination, size), b.memory.Addr()+source
	}
	takes := op == rdma.Send || op == rdma.SendImmediate || op == rdma.WriteImmediate
	if takes {
		y.receive(7, b.sge(destination, size+64))
	}
	x.send(r, local)
	if c := x.want(3, rdma.Success); c.Kind != kinds[op] {
		x.t.Errorf("the completion is of %v, not %v", c.Kind, kinds[op])
	}
	if takes {
		y.received(op, size)
	}
	same := func() bool { return bytes.Equal(got[:size], want) && got[size] == 0xee }
	if op == rdma.Write && x.qp.Config().Transport == rdma.UC { // its completion says only that it was sent
		testenv.Wait(x.t, 2*time.Second, "the WRITE to arrive", same)
	}
	if !same() {
		x.t.Error("the bytes are not those that were sent, or there are more")
	}
}

var kinds = map[rdma.Op]rdma.Kind{rdma.Send: rdma.SendDone, rdma.SendImmediate: rdma.SendDone, rdma.Write: rdma.WriteDone,
	rdma.WriteImmediate: rdma.WriteDone, rdma.Read: rdma.ReadDone}

// received checks the completion of a receive for the operation.
func (y *end) received(op rdma.Op, size uint32) {
	y.t.Helper()
	c := y.want(7, rdma.Success)
	kind := rdma.Received
	if op == rdma.WriteImmediate {
		kind = rdma.ReceivedWrite
	}
	if c.Kind != kind || c.Length != size {
		y.t.Errorf("%v of %d bytes, want %v of %d", c.Kind, c.Length, kind, size)
	}
	with := op != rdma.Send
	if (c.Flags&rdma.HasImmediate != 0) != with || with && c.Immediate() != [4]byte{1, 2, 3, 4} {
		y.t.Errorf("immediate %v, flags %#x", c.Immediate(), c.Flags)
	}
}

// pieces: both sides give their memory in several elements of different sizes.
func pieces(b *bench) {
	x, y := b.pair(config(rdma.RC))
	var want []byte
	var from, to []rdma.SGE
	for i, n := range []uint32{1, 4095, 17, 3000} {
		want = append(want, b.fill(source+uint64(i)*8192+3, n)...)
		from = append(from, b.sge(source+uint64(i)*8192+3, n))
	}
	for i, n := range []uint32{2000, 7, 5000, 106} {
		to = append(to, b.sge(destination+uint64(i)*8192+1, n))
	}
	y.receive(7, to...)
	x.send(rdma.SendRequest{ID: 3, Op: rdma.Send, Flags: rdma.Signaled}, from...)
	x.want(3, rdma.Success)
	if c := y.want(7, rdma.Success); int(c.Length) != len(want) {
		b.t.Errorf("%d bytes, want %d", c.Length, len(want))
	}
	var got []byte
	for _, s := range to {
		got = append(got, b.region.At(s.Addr-b.memory.Addr(), uint64(s.Length))...)
	}
	if !bytes.Equal(got[:len(want)], want) {
		b.t.Error("the bytes are not those that were sent")
	}
}

// inline: inline data is copied at the time of posting, so its memory can be reused at once.
func inline(b *bench) {
	x, y := b.pair(config(rdma.RC))
	want := append(bytes.Clone(b.fill(source+100, 20)), b.fill(source+5000, 77)...)
	y.receive(7, b.sge(destination, 200))
	x.send(rdma.SendRequest{ID: 3, Op: rdma.Send, Flags: rdma.Signaled | rdma.Inline}, b.sge(source+100, 20), b.sge(source+5000, 77))
	clear(b.region.At(source, 8192))
	x.want(3, rdma.Success)
	y.want(7, rdma.Success)
	if got := b.region.At(destination, uint64(len(want))); !bytes.Equal(got, want) {
		b.t.Errorf("%x, want %x", got, want)
	}
}

// unsignaled: unsignaled requests give no completion, and the next signaled one does.
func unsignaled(b *bench) {
	x, y := b.pair(config(rdma.RC))
	for id := range uint64(4) {
		y.receive(id, b.sge(destination, 64))
	}
	for id := range uint64(3) {
		x.send(rdma.SendRequest{ID: id, Op: rdma.Send}, b.sge(source, 8))
	}
	x.send(rdma.SendRequest{ID: 3, Op: rdma.Send, Flags: rdma.Signaled}, b.sge(source, 8))
	x.want(3, rdma.Success)
	for id := range uint64(4) {
		y.want(id, rdma.Success)
	}
	x.quiet()
}

// fence: a SEND with a fence carries the data of the READ before it.
func fence(b *bench) {
	x, y := b.pair(config(rdma.RC))
	const size = 65536
	want := b.fill(source, size)
	y.receive(7, b.sge(destination, size))
	middle := b.sge(destination+1<<20, size)
	read := rdma.SendRequest{ID: 1, Op: rdma.Read, SGEs: 1, RKey: b.memory.RKey(), RemoteAddr: b.memory.Addr() + source}
	send := rdma.SendRequest{ID: 2, Op: rdma.Send, SGEs: 1, Flags: rdma.Signaled | rdma.Fence}
	if n, err := x.qp.PostSend([]rdma.SendRequest{read, send}, []rdma.SGE{middle, middle}); n != 2 || err != nil {
		b.t.Fatalf("%d, %v", n, err)
	}
	x.want(2, rdma.Success)
	y.want(7, rdma.Success)
	if !bytes.Equal(b.region.At(destination, size), want) {
		b.t.Error("what was sent is not what was read")
	}
}

// atomics: an atomic returns the old value and stores the right new one.
func atomics(b *bench) {
	x, _ := b.pair(config(rdma.RC))
	word := func(addr uint64) uint64 { return binary.NativeEndian.Uint64(b.region.At(addr, 8)) }
	r := rdma.SendRequest{Flags: rdma.Signaled, RKey: b.memory.RKey(), RemoteAddr: b.memory.Addr() + destination}
	for id, c := range []struct {
		op            rdma.Op
		compare, swap uint64
		was, is       uint64
	}{
		{rdma.FetchAdd, 5, 0, 0, 5},
		{rdma.FetchAdd, 1 << 40, 0, 5, 5 + 1<<40},
		{rdma.CompareSwap, 4, 99, 5 + 1<<40, 5 + 1<<40},
		{rdma.CompareSwap, 5 + 1<<40, 99, 5 + 1<<40, 99},
	} {
		r.ID, r.Op, r.Compare, r.Swap = uint64(id), c.op, c.compare, c.swap
		x.send(r, b.sge(source, 8))
		done := x.want(r.ID, rdma.Success)
		if was, is := word(source), word(destination); was != c.was || is != c.is {
			b.t.Errorf("%v of %d, %d: there was %d, is %d; want %d, %d", c.op, c.compare, c.swap, was, is, c.was, c.is)
		}
		if want := map[rdma.Op]rdma.Kind{rdma.FetchAdd: rdma.FetchAddDone, rdma.CompareSwap: rdma.CompareSwapDone}[c.op]; done.Kind != want {
			b.t.Errorf("%v completes as %v", c.op, done.Kind)
		}
	}
}

// datagrams: datagrams of all sizes up to the MTU arrive behind their network header, with the
// sender.
func datagrams(b *bench) {
	x, y := b.end(config(rdma.UD)), b.end(config(rdma.UD))
	x.connect(0)
	y.connect(0)
	handle := testenv.Opened(b.t, func() (rdma.AddressHandle, error) {
		return b.pd.NewAddressHandle(rdma.Address{GID: b.gid.GID, GIDIndex: uint16(b.gid.Index), Port: 1})
	})
	for _, size := range []uint32{0, 1, 255, uint32(b.mtu.Bytes())} {
		for _, op := range []rdma.Op{rdma.Send, rdma.SendImmediate} {
			want := b.fill(source, size)
			y.receive(7, b.sge(destination, size+rdma.GRHBytes+1))
			x.send(rdma.SendRequest{ID: 3, Op: op, Flags: rdma.Signaled, Immediate: [4]byte{9, 8, 7, 6}, Handle: handle.ID(),
				RemoteQPN: y.qp.QPN(), RemoteQKey: qkey}, b.sge(source, size))
			x.want(3, rdma.Success)
			c := y.want(7, rdma.Success)
			if c.Length != size+rdma.GRHBytes || c.RemoteQPN != x.qp.QPN() || c.Flags&rdma.HasGRH == 0 {
				b.t.Errorf("%v of %d: %d bytes of %d, flags %#x", op, size, c.Length, c.RemoteQPN, c.Flags)
			}
			if op == rdma.SendImmediate && c.Immediate() != [4]byte{9, 8, 7, 6} {
				b.t.Errorf("immediate %v", c.Immediate())
			}
			if header := b.region.At(destination+20, 20); header[0]>>4 != 4 || [4]byte(header[12:16]) != here.As4() {
				b.t.Errorf("the header is %x", header)
			}
			if !bytes.Equal(b.region.At(destination+rdma.GRHBytes, uint64(size)), want) {
				b.t.Errorf("%v of %d: the bytes are not those that were sent", op, size)
			}
		}
	}
}

// batches: one call can post more requests than the driver takes at once. It returns how many a
// full queue accepted, and those complete in order.
func batches(b *bench) {
	c := config(rdma.RC)
	c.SendDepth, c.RecvDepth = 150, 300
	x, y := b.pair(c)
	sends, receives := make([]rdma.SendRequest, 1000), make([]rdma.ReceiveRequest, 200)
	sges := make([]rdma.SGE, len(sends))
	for i := range sends {
		sends[i] = rdma.SendRequest{ID: uint64(i), Op: rdma.Send, SGEs: 1, Flags: rdma.Signaled}
		sges[i] = b.sge(source, 8)
	}
	for i := range receives {
		receives[i] = rdma.ReceiveRequest{ID: uint64(i), SGEs: 1}
	}
	if n, err := y.qp.PostReceive(receives, sges); n != len(receives) || err != nil {
		b.t.Fatalf("%d receives, %v", n, err)
	}
	if n, err := x.qp.PostSend(sends[:130], sges); n != 130 || err != nil {
		b.t.Fatalf("%d sends, %v", n, err)
	}
	for id := range uint64(130) {
		x.want(id, rdma.Success)
		y.want(id, rdma.Success)
	}
}
