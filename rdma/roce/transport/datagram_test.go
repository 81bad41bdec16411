package transport

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
	"github.com/unifiedd/unifiedd/umem"
)

// handle makes an address handle on the first end.
func (w *world) handle() uint32 {
	id, err := w.ends[0].NewAddressHandle(testDomain, 9)
	must(w.t, err)
	return id
}

func TestDatagrams(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a, b := w.pair(options{transport: rdma.UD})
	from, to, ah := w.ends[0], w.ends[1], w.handle()
	for i, n := range []int{0, 1, 63, 1023, 1024} {
		want := from.fill(0, n, byte(i))
		receiveInto(t, b, uint64(i), to.sge(0, 30), to.sge(5000, 10+n))
		send(t, a, rdma.SendRequest{ID: 1, Op: rdma.SendImmediate, Immediate: [4]byte{9}, Handle: ah, RemoteQPN: b.Number(), RemoteQKey: 0x1111}, from.sge(0, n))
		w.run(time.Millisecond)
		c := to.done[0]
		if c.RemoteQPN != a.Number() || c.Flags != rdma.HasGRH|rdma.HasImmediate {
			t.Errorf("from %d with flags %x", c.RemoteQPN, c.Flags)
		}
		to.want(t, fmt.Sprintf("%d receive %d imm 9000000", i, n+40))
		same(t, "datagram", to.memory(5010, n), want)
		if version := to.memory(20, 1)[0]; version != 0x45 {
			t.Errorf("the network header begins with %#x", version)
		}
	}
	from.want(t, "1 SEND", "1 SEND", "1 SEND", "1 SEND", "1 SEND")
	w.clean()
}

// TestDatagramsDropped: the receiver drops and counts datagrams that it cannot accept; a datagram
// longer than the MTU fails at the sender.
func TestDatagramsDropped(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a, b := w.pair(options{transport: rdma.UD})
	from, to, ah := w.ends[0], w.ends[1], w.handle()
	try := func(d Drop, qpn, qkey uint32, n int) {
		t.Helper()
		before := to.Dropped(d)
		send(t, a, rdma.SendRequest{ID: 1, Op: rdma.Send, Handle: ah, RemoteQPN: qpn, RemoteQKey: qkey}, from.sge(0, n))
		w.run(time.Millisecond)
		if to.Dropped(d) != before+1 {
			t.Errorf("nothing was dropped: %v", d)
		}
	}
	try(NoReceive, b.Number(), 0x1111, 4)
	receiveInto(t, b, 7, to.sge(0, 50))
	try(BadQKey, b.Number(), 0x1112, 4)
	try(UnknownQueuePair, b.Number()+1, 0x1111, 4)
	try(UnknownQueuePair, 0, 0x1111, 4)
	try(TooLong, b.Number(), 0x1111, 11)
	try(NoGroup, multicast, 0x1111, 4)
	send(t, a, rdma.SendRequest{ID: 2, Op: rdma.Send, Handle: ah, RemoteQPN: b.Number(), RemoteQKey: 1 << 31}, from.sge(0, 10)) // 1 << 31: use a's own Q_Key
	w.run(time.Millisecond)
	to.want(t, "7 receive 50")
	from.done = nil
	send(t, a, rdma.SendRequest{ID: 3, Op: rdma.Send, Handle: ah}, from.sge(0, 1025))
	w.run(time.Millisecond)
	from.want(t, "3 IBV_WC_LOC_LEN_ERR")
}

// TestHandleGone: a posted request fails if its address handle is closed before the packet is sent.
func TestHandleGone(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a, _ := w.pair(options{transport: rdma.UD})
	ah := w.handle()
	send(t, a, rdma.SendRequest{ID: 3, Op: rdma.Send, Handle: ah})
	w.ends[0].CloseAddressHandle(ah)
	w.run(time.Millisecond)
	w.ends[0].want(t, "3 IBV_WC_LOC_QP_OP_ERR")
}

// TestGroup: the three queue pairs attached to a group receive a datagram to it, one of them in a
// loaned frame; a fourth, which is not attached, receives nothing.
func TestGroup(t *testing.T) {
	w := newWorld(t, 1, Config{})
	from, to := w.ends[0], w.ends[1]
	a, b := w.pair(options{transport: rdma.UD})
	_, c := w.pair(options{transport: rdma.UD})
	_, d := w.pair(options{transport: rdma.UD, loans: 4})
	_, other := w.pair(options{transport: rdma.UD})
	group := rdma.GIDOf(netip.MustParseAddr("239.1.2.3"))
	for _, q := range []*QueuePair{d, b, c, c} {
		must(t, to.Attach(q, group))
	}
	if err := to.Attach(b, to.gid); err == nil {
		t.Error("an ordinary address became a group")
	}
	for i, q := range []*QueuePair{b, c, other} {
		receiveInto(t, q, uint64(i), to.sge(i*1000, 1000))
	}
	from.fill(0, 100, 8)
	path := wire.Path{Source: from.gid, Destination: group, SourcePort: 0xc123, HopLimit: 1}
	var err error
	from.template, err = wire.NewTemplate(&path)
	must(t, err)
	send(t, a, rdma.SendRequest{ID: 3, Op: rdma.Send, Handle: w.handle(), RemoteQPN: multicast, RemoteQKey: 0x1111}, from.sge(0, 100))
	w.run(time.Millisecond)
	if len(to.done) != 3 {
		t.Fatalf("%d messages came, want 3", len(to.done))
	}
	same(t, "first", to.memory(40, 100), from.memory(0, 100))
	same(t, "second", to.memory(1040, 100), from.memory(0, 100))
	var f [2]umem.Frame
	if n := d.Loaned(f[:]); n != 1 {
		t.Fatalf("%d frames are lent, want 1", n)
	}
	same(t, "third", to.region.Bytes(f[0]), from.memory(0, 100))
	d.Return(f[:1])
	w.run(time.Millisecond)
	to.Detach(b, group)
	to.Detach(c, group)
	to.Detach(d, group)
	if len(to.groups) != 0 {
		t.Error("the group is there still")
	}
}
