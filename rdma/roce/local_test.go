package roce

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

func gidOf(text string) rdma.GID { return rdma.GIDOf(netip.MustParseAddr(text)) }

type tags = [wire.MaxTags]wire.Tag

// TestNotFor: notFor matches destinations and VLAN tags with addresses on several VLANs, two of
// which have the same address.
func TestNotFor(t *testing.T) {
	five, six := wire.Tag{Type: 0x8100, TCI: 5}, wire.Tag{Type: 0x88a8, TCI: 6}
	bare, on5, on65, both := gidOf("10.0.0.1"), gidOf("10.0.5.1"), gidOf("fe80::5"), gidOf("10.0.9.1")
	m := &datapath{locals: []local{{bare, vlan{}}, {on5, vlan{five}}, {on65, vlan{six, five}}, {both, vlan{}}, {both, vlan{six}}}}
	urgent, priority := wire.Tag{Type: 0x8100, TCI: 7<<13 | 5}, wire.Tag{Type: 0x8100, TCI: 3 << 13}
	group := gidOf("239.1.2.3")
	for _, c := range []struct {
		to       rdma.GID
		tags     tags
		why      counter
		stripped counter // expected for a card that strips tags
	}{
		{bare, tags{}, 0, 0}, {bare, tags{priority}, 0, 0}, {bare, tags{five}, otherVLAN, otherVLAN},
		{on5, tags{five}, 0, 0}, {on5, tags{urgent}, 0, 0}, {on5, tags{priority, five}, 0, 0}, {on5, tags{}, otherVLAN, 0}, {on5, tags{six}, otherVLAN, otherVLAN},
		{on5, tags{five, five}, otherVLAN, otherVLAN}, {on5, tags{{Type: 0x88a8, TCI: 5}}, otherVLAN, otherVLAN},
		{on65, tags{six, five}, 0, 0}, {on65, tags{six, urgent}, 0, 0}, {on65, tags{five, six}, otherVLAN, otherVLAN}, {on65, tags{six}, otherVLAN, otherVLAN},
		{both, tags{}, 0, 0}, {both, tags{six}, 0, 0}, {both, tags{five}, otherVLAN, otherVLAN},
		{group, tags{}, 0, 0}, {group, tags{five}, 0, 0}, {group, tags{{Type: 0x8100, TCI: 9}}, otherVLAN, otherVLAN},
		{gidOf("10.0.0.2"), tags{}, notOurs, notOurs}, {gidOf("10.0.0.2"), tags{five}, notOurs, notOurs},
	} {
		for _, at := range []int{0, 2, 4, 9} { // the index of the previous match does not matter
			e := &wire.Envelope{Destination: c.to, Tags: c.tags}
			m.at, m.stripped = at, false
			why := m.notFor(e)
			m.at, m.stripped = at, true
			if stripped := m.notFor(e); why != c.why || stripped != c.stripped {
				t.Errorf("%v with %v: %q, want %q; without tags %q, want %q", c.to, c.tags, counterNames[why], counterNames[c.why],
					counterNames[stripped], counterNames[c.stripped])
			}
		}
	}
}

// TestOtherVLAN: a packet on another VLAN reaches no queue pair. A packet whose tag has only a
// priority does.
func TestOtherVLAN(t *testing.T) {
	g := newRig(t, rigOptions{})
	b := g.sides[1].newEnd(config(rdma.UD))
	g.must(b.lead(rdma.Attributes{Port: 1, QKey: qkey}))
	sender := testenv.NewSender(t, &g.pair.A)
	dropped := func() string { return fmt.Sprint(count(b.dev, "dropped_other_vlan"), count(b.dev, "packets_received")) }
	for i, c := range []struct {
		tags tags
		want string
	}{{tags{}, "0 1"}, {tags{{Type: 0x8100, TCI: 5}}, "1 1"}, {tags{{Type: 0x8100, TCI: 5 << 13}}, "1 2"}, {tags{{Type: 0x88a8, TCI: 5}, {Type: 0x8100}}, "2 2"}} {
		b.receive(uint64(i), b.sge(0, 100))
		if _, err := sender.Send(g.datagram(b, c.tags)); err != nil {
			t.Fatal(err)
		}
		b.await(func() bool { return dropped() == c.want })
	}
	b.want(0, rdma.Received, rdma.Success)
	b.want(1, rdma.Received, rdma.Success)
}

// datagram returns a packet of 16 bytes from A to a queue pair of B.
func (g *rig) datagram(b *end, on tags) []byte {
	path := wire.Path{Source: g.sides[0].gid.GID, Destination: b.gid.GID, SourceMAC: [6]byte(g.pair.A.MAC), DestinationMAC: [6]byte(g.pair.B.MAC), Tags: on,
		SourcePort: 0xc000, HopLimit: 64}
	template, err := wire.NewTemplate(&path)
	g.must(err)
	h := wire.Header{Opcode: wire.UDSendOnly, PKey: wire.DefaultPKey, DestQPN: b.qp.QPN(), QKey: qkey, SourceQPN: 7}
	frame := make([]byte, template.Bytes()+h.Opcode.HeaderBytes()+16+wire.ICRCBytes)
	n := template.Put(frame, 1, len(frame)-template.Bytes())
	n += h.Encode(frame[n:]) + 16
	wire.Begin(frame[template.Network():n]).Finish(frame[n:], 0)
	return frame
}

// count returns one of a device's counters.
func count(d *Device, name string) uint64 {
	for _, c := range d.Counters() {
		if c.Name == name {
			return c.Value
		}
	}
	return 1 << 63
}
