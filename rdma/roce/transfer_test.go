package roce

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
)

// operations are the operations under test, with the kind of the sender's completion.
var operations = []struct {
	op   rdma.Op
	done rdma.Kind
}{
	{rdma.Send, rdma.SendDone}, {rdma.SendImmediate, rdma.SendDone}, {rdma.Write, rdma.WriteDone}, {rdma.WriteImmediate, rdma.WriteDone}, {rdma.Read, rdma.ReadDone},
}

// TestTransfer: messages of many sizes arrive intact, by each operation, transport and MTU.
func TestTransfer(t *testing.T) {
	for _, c := range []struct {
		name string
		rigOptions
		mtus []rdma.MTU
	}{
		{"IPv4", rigOptions{mtu: 4200}, []rdma.MTU{rdma.MTU256, rdma.MTU1024, rdma.MTU4096}},
		{"IPv6", rigOptions{mtu: 4200, ipv6: true}, []rdma.MTU{rdma.MTU512, rdma.MTU4096}},
		{"copied", rigOptions{mtu: 4200, config: Config{CopyBelow: 1 << 20}}, []rdma.MTU{rdma.MTU2048, rdma.MTU4096}},
		{"small frames", rigOptions{mtu: 4200, frames: 2048}, []rdma.MTU{rdma.MTU1024, rdma.MTU4096}},
		{"gathered", rigOptions{mtu: 4200, queues: 2, config: Config{CopyBelow: -1}}, []rdma.MTU{rdma.MTU256, rdma.MTU2048}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.frames != 0 {
				testenv.Long(t, "frames of 4096 bytes cover most of it")
			}
			g := newRig(t, c.rigOptions)
			if testing.Short() {
				c.mtus = c.mtus[:1]
			}
			for _, mtu := range c.mtus {
				for _, transport := range []rdma.Transport{rdma.RC, rdma.UC} {
					a, b := g.connected(config(transport), mtu)
					g.transfer(a, b, mtu)
					if c.frames != 0 {
						g.copyAll(true)
						g.transfer(a, b, mtu)
						g.copyAll(false)
					}
				}
			}
		})
	}
}

// transfer sends messages of sizes around the limits of packets and frames, from odd addresses to
// odd addresses.
func (g *rig) transfer(a, b *end, mtu rdma.MTU) {
	m := mtu.Bytes()
	for i, size := range []int{0, 1, 3, 63, 64, m - 1, m, m + 1, 2*m + 7, 4096, 3*4096 + 5, 64*m + 1} {
		for _, o := range operations {
			if !a.qp.Config().Transport.Allows(o.op) {
				continue
			}
			from, to, id := uint64(i), uint64(1<<20+3*i), uint64(1000*size)+uint64(o.op)
			clear(b.at(to, size+1))
			r := rdma.SendRequest{ID: id, Op: o.op, Immediate: [4]byte{1, 2, 3, byte(i)}, RemoteAddr: b.base + to, RKey: b.memory.RKey()}
			want := a.fill(from, size, byte(size))
			if o.op == rdma.Read {
				want = b.fill(to, size, byte(size))
				clear(a.at(from, size))
			} else if o.op != rdma.Write {
				b.receive(id, b.sge(to, size+1))
			}
			a.send(r, a.sge(from, size/2), a.sge(from+uint64(size/2), size-size/2))
			g.expect(a, b, r, o.done, size)
			if !bytes.Equal(a.at(from, size), want) || !bytes.Equal(b.at(to, size), want) {
				g.Fatalf("%v of %d bytes at MTU %v: what came differs", o.op, size, mtu)
			}
		}
	}
}

// expect waits until a message has arrived and both ends have their completions.
func (g *rig) expect(a, b *end, r rdma.SendRequest, done rdma.Kind, size int) {
	g.Helper()
	if r.Op != rdma.Read && r.Op != rdma.Write {
		kind := map[bool]rdma.Kind{true: rdma.ReceivedWrite, false: rdma.Received}[r.Op == rdma.WriteImmediate]
		c := b.want(r.ID, kind, rdma.Success)
		if int(c.Length) != size || r.Op != rdma.Send && c.Immediate() != r.Immediate {
			g.Errorf("%v: %d bytes came with %v, want %d with %v", r.Op, c.Length, c.Immediate(), size, r.Immediate)
		}
	}
	a.want(r.ID, done, rdma.Success)
	if a.qp.Config().Transport != rdma.RC && r.Op == rdma.Write { // no completion says when it has arrived
		b.await(func() bool { return b.value("packets_received") == a.value("packets_sent") })
	}
}

// TestAtomics: atomics change the word in the peer's memory and return its old value.
func TestAtomics(t *testing.T) {
	g := newRig(t, rigOptions{})
	a, b := g.connected(config(rdma.RC), rdma.MTU1024)
	word := func() uint64 { return binary.NativeEndian.Uint64(b.at(8, 8)) }
	binary.NativeEndian.PutUint64(b.at(8, 8), 40)
	r := rdma.SendRequest{ID: 1, Op: rdma.FetchAdd, RemoteAddr: b.base + 8, RKey: b.memory.RKey(), Compare: 2}
	a.send(r, a.sge(0, 8))
	a.want(1, rdma.FetchAddDone, rdma.Success)
	if was := binary.NativeEndian.Uint64(a.at(0, 8)); was != 40 || word() != 42 {
		t.Errorf("fetch-and-add: %d was there and %d is", was, word())
	}
	r.Op, r.Compare, r.Swap = rdma.CompareSwap, 42, 7
	for i, want := range []uint64{42, 7} {
		a.send(r, a.sge(0, 8))
		a.want(1, rdma.CompareSwapDone, rdma.Success)
		if was := binary.NativeEndian.Uint64(a.at(0, 8)); was != want || word() != 7 {
			t.Errorf("compare-and-swap %d: %d was there and %d is", i, was, word())
		}
	}
}

// TestDatagrams: datagrams arrive in both directions, behind their network header.
func TestDatagrams(t *testing.T) {
	for name, o := range map[string]rigOptions{"IPv4": {}, "IPv6": {ipv6: true}} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, o)
			a, b := g.connected(config(rdma.UD), 0)
			h := a.handle(b.side)
			for _, size := range []int{0, 1, 64, 1024} {
				want := a.fill(0, size, byte(size))
				b.receive(9, b.sge(4096, size+rdma.GRHBytes))
				a.send(rdma.SendRequest{ID: 8, Op: rdma.SendImmediate, Immediate: [4]byte{9}, RemoteQPN: b.qp.QPN(), RemoteQKey: qkey, Handle: h.ID()}, a.sge(0, size))
				c := b.want(9, rdma.Received, rdma.Success)
				a.want(8, rdma.SendDone, rdma.Success)
				if c.RemoteQPN != a.qp.QPN() || c.Flags&rdma.HasGRH == 0 || int(c.Length) != size+rdma.GRHBytes || !bytes.Equal(b.at(4096+rdma.GRHBytes, size), want) {
					t.Errorf("%d bytes: %+v", size, c)
				}
				if from := b.sender(4096); from != a.gid.GID {
					t.Errorf("it came from %v, not %v", from, a.gid.GID)
				}
			}
		})
	}
}

// sender returns the source address in the network header at an offset.
func (e *end) sender(offset uint64) rdma.GID {
	grh := e.at(offset, rdma.GRHBytes)
	if e.gid.GID.Is4() {
		var g rdma.GID
		g[10], g[11] = 0xff, 0xff
		copy(g[12:], grh[32:36])
		return g
	}
	return rdma.GID(grh[8:24])
}

// handle makes an address handle to the other side.
func (e *end) handle(to *side) rdma.AddressHandle {
	e.Helper()
	return testenv.Opened(e.rig, func() (rdma.AddressHandle, error) {
		return e.pd.NewAddressHandle(rdma.Address{GID: to.gid.GID, GIDIndex: uint16(e.gid.Index), Port: 1})
	})
}

// TestMany: queue pairs of all transports transfer data at the same time.
func TestMany(t *testing.T) {
	g := newRig(t, rigOptions{})
	type two struct{ a, b *end }
	var all []two
	for i := range 12 {
		a, b := g.connected(config([]rdma.Transport{rdma.RC, rdma.UC}[i%2]), rdma.MTU1024)
		all = append(all, two{a, b})
	}
	const size = 30_000
	for round := range 5 {
		wants := make([][]byte, len(all))
		for i, p := range all {
			offset := uint64(i * 65536)
			wants[i] = p.a.fill(offset, size, byte(i+round))
			p.b.receive(uint64(i), p.b.sge(offset+1<<20, size))
		}
		for i, p := range all {
			p.a.send(rdma.SendRequest{ID: uint64(i), Op: rdma.Send}, p.a.sge(uint64(i*65536), size))
		}
		for i, p := range all {
			p.b.want(uint64(i), rdma.Received, rdma.Success)
			p.a.want(uint64(i), rdma.SendDone, rdma.Success)
			if !bytes.Equal(p.b.at(uint64(i*65536)+1<<20, size), wants[i]) {
				t.Errorf("round %d: what came by queue pair %d differs", round, i)
			}
		}
	}
}

// TestOwnAddress: both ends of a connection can be on one device.
func TestOwnAddress(t *testing.T) {
	g := newRig(t, rigOptions{mtu: 4200})
	s := g.sides[0]
	for _, transport := range []rdma.Transport{rdma.RC, rdma.UC} {
		a, b := s.newEnd(config(transport)), s.newEnd(config(transport))
		g.must(a.lead(attributes(s, b.qp.QPN(), rdma.MTU4096, s)))
		g.must(b.lead(attributes(s, a.qp.QPN(), rdma.MTU4096, s)))
		for _, size := range []int{0, 64, 4096, 100_000} {
			want := a.fill(0, size, byte(size))
			b.receive(1, b.sge(1<<20, size))
			a.send(rdma.SendRequest{ID: 2, Op: rdma.Send}, a.sge(0, size))
			b.want(1, rdma.Received, rdma.Success)
			a.want(2, rdma.SendDone, rdma.Success)
			if !bytes.Equal(b.at(1<<20, size), want) {
				t.Errorf("%v, %d bytes: what came differs", transport, size)
			}
		}
	}
	if n := g.sides[1].value("packets_received"); n != 0 {
		t.Errorf("%d packets went to the other side", n)
	}
}

// value returns one of the device's counters.
func (s *side) value(name string) uint64 {
	s.Helper()
	for _, c := range s.dev.Counters() {
		if c.Name == name {
			return c.Value
		}
	}
	s.Fatalf("no counter %s", name)
	return 0
}
