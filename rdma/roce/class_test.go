package roce

import (
	"encoding/binary"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// TestTrafficClass: all packets of a queue pair have its traffic class: data, ACKs, and the CNPs that answer packets
// which a router has marked. The other side's class does not matter.
func TestTrafficClass(t *testing.T) {
	const classA, classB = 26<<2 | wire.ECT0, 18 << 2
	g, r := newBadRig(t, 1, rigOptions{})
	var data, acks, notices atomic.Uint64
	look := func(forward bool, frame []byte, e *wire.Envelope) {
		var h wire.Header
		if _, why := h.Decode(frame[e.Transport:]); why != wire.WellFormed {
			t.Errorf("a packet is %v", why)
			return
		}
		want, from := uint8(classA), "a"
		if !forward {
			want, from = classB, "b"
		}
		if e.TrafficClass != want {
			t.Errorf("%v from %s has traffic class %d, want %d", h.Opcode, from, e.TrafficClass, want)
		}
		switch {
		case forward:
			data.Add(1)
			markCongestion(frame[e.Network:])
		case h.Opcode == wire.RCAcknowledge:
			acks.Add(1)
		case h.Opcode == wire.CNP:
			notices.Add(1)
		}
	}
	r.look.Store(&look)
	a, b := g.sides[0].newEnd(config(rdma.RC)), g.sides[1].newEnd(config(rdma.RC))
	for _, one := range []struct {
		end, peer *end
		class     uint8
	}{{a, b, classA}, {b, a, classB}} {
		attributes := attributes(one.peer.side, one.peer.qp.QPN(), rdma.MTU1024, one.end.side)
		attributes.Address.TrafficClass = one.class
		g.must(one.end.lead(attributes))
	}
	for i := range uint64(20) {
		b.receive(i, b.sge(0, 3000))
		a.send(rdma.SendRequest{ID: i, Op: rdma.Send}, a.sge(0, 3000))
		b.want(i, rdma.Received, rdma.Success)
		a.want(i, rdma.SendDone, rdma.Success)
	}
	if data.Load() < 60 || acks.Load() == 0 || notices.Load() == 0 {
		t.Errorf("%d packets of data, %d ACKs, %d CNPs", data.Load(), acks.Load(), notices.Load())
	}
	if count(a.dev, "rate_cuts") == 0 || count(b.dev, "rate_cuts") != 0 {
		t.Errorf("the sender has %s, the receiver%s", a.dev.show(), b.dev.show())
	}
}

// markCongestion marks an IPv4 packet CE, as a router does.
func markCongestion(ip []byte) {
	ip[1] |= wire.CE
	ip[10], ip[11] = 0, 0
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
}

// TestServiceLevelOutOfRange: a service level that a VLAN's tag cannot carry is refused.
func TestServiceLevelOutOfRange(t *testing.T) {
	g := newRig(t, rigOptions{})
	a := g.sides[0]
	address := rdma.Address{GID: g.sides[1].gid.GID, GIDIndex: uint16(a.gid.Index), Port: 1, SL: 8}
	if _, err := a.pd.NewAddressHandle(address); err == nil || !strings.Contains(err.Error(), "service level 8") {
		t.Errorf("service level 8: %v", err)
	}
	address.SL = 7
	testenv.Opened(g, func() (rdma.AddressHandle, error) { return a.pd.NewAddressHandle(address) })
}
