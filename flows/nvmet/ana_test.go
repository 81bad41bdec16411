package nvmet

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
	"github.com/unifiedd/unifiedd/umem"
)

// anaChanged is the result of the event after which a host reads the ANA log page.
const (
	anaChanged = 2 | 0x03<<8 | 0x0c<<16
	anaPage    = 0x0c
)

// states reads the ANA log page: the states of namespaces by number.
func (h *handMade) states(at uint64) map[uint32]byte {
	h.Helper()
	page, all := h.admin.logPage(anaPage, at), map[uint32]byte{}
	groups := binary.LittleEndian.Uint16(page[8:])
	for b := page[16:]; groups > 0; groups-- {
		if n := binary.LittleEndian.Uint32(b[4:]); n != 1 || binary.LittleEndian.Uint32(b) != binary.LittleEndian.Uint32(b[32:]) {
			h.Fatalf("a group with %d namespaces: %x", n, b[:36])
		}
		all[binary.LittleEndian.Uint32(b)] = b[16]
		b = b[36:]
	}
	return all
}

// at returns a rig and a station for one more server, at another port.
func (r *rig) at(s *station, listen string) (*rig, *station) {
	other, hosts := *r, *s
	other.listen = listen
	hosts.target = netip.MustParseAddrPort(listen)
	return &other, &hosts
}

// TestTwoPaths: two servers serve one disk as one subsystem. A host has a controller of each. When
// one server becomes inaccessible, the host is told, and its commands there complete with a status
// that sends it to the other one. Commands that arrived before complete.
func TestTwoPaths(t *testing.T) {
	r, s := newSoftRig(t)
	disk, second := r.zram(16<<20), r.zram(16<<20)
	with := func(states ...fabrics.ANAState) []Subsystem {
		return []Subsystem{{NQN: softNQN, AnyHost: true, Namespaces: []Namespace{{ID: 1, Disk: disk, ANA: states[0]}, {ID: 2, Disk: second, ANA: states[1]}}}}
	}
	config := Config{Sessions: 3, Queues: 2, Depth: 32, Capsule: 4096, Small: 8, Large: 4, FirstController: 100, LastController: 102, Subsystems: with(0, fabrics.ANANonOptimized)}
	near := r.serve(config)
	config.FirstController, config.LastController, config.Subsystems = 200, 300, with(fabrics.ANANonOptimized, 0)
	beside, hosts := r.at(s, strings.Replace(r.listen, ":4420", ":4421", 1))
	far := beside.serve(config)
	change := func(v *served, to ...fabrics.ANAState) {
		t.Helper()
		r.must(v.do(func() error { _, err := v.server.Change(with(to...)); return err }))
	}
	at := s.room(64 << 10)
	one := s.connects(softHost, 1, 32)
	hosts.next = s.next // they share the memory
	two := hosts.connects(softHost, 1, 32)
	s.next = hosts.next
	if one.controller != 100 || two.controller != 200 {
		t.Errorf("controllers %d and %d", one.controller, two.controller)
	}
	for _, h := range []*handMade{one, two} {
		h.admin.succeeds(&message{opcode: fabrics.OpSetFeatures, words: [6]uint32{0x0b, 1<<8 | 1<<11}})
		h.admin.awaits()
	}
	has := func(h *handMade, want ...byte) {
		t.Helper()
		if got := h.states(at); len(got) != 2 || got[1] != want[0] || got[2] != want[1] {
			t.Errorf("states %v, not %v", got, want)
		}
	}
	has(one, 1, 2)
	has(two, 2, 1)
	data, back := s.room(64<<10), s.room(64<<10)
	copy(s.bytes(data, 8), "by both!")
	one.queues[0].succeeds(blocks(fabrics.OpWrite, 0, 16, s.keyed(data, 64<<10)))
	two.queues[0].succeeds(blocks(fabrics.OpRead, 0, 16, s.keyed(back, 64<<10)))
	if !slices.Equal(s.bytes(data, 64<<10), s.bytes(back, 64<<10)) {
		t.Error("the other server reads something else")
	}

	const writes = 16
	for n := range uint16(writes) {
		r.must(one.queues[0].say(blocks(fabrics.OpWrite, uint64(n), 1, s.keyed(data, 4096)).append(nil, 1000+n)))
	}
	change(near, fabrics.ANAInaccessible, fabrics.ANANonOptimized)
	one.admin.hears(anaChanged)
	has(one, 3, 2)
	for range writes {
		if c, err := one.queues[0].hear(); err != nil || c.Status != fabrics.Success && c.Status != fabrics.AsymmetricAccessInaccessible {
			t.Errorf("a write while the state changes: %v, %v", c.Status, err)
		}
	}
	refused := near.server.Stats().Inaccessible
	for _, c := range []*message{blocks(fabrics.OpRead, 0, 1, s.keyed(data, 4096)), blocks(fabrics.OpWrite, 0, 1, s.keyed(data, 4096)), {opcode: fabrics.OpFlush, namespace: 1},
		blocks(fabrics.OpCompare, 0, 1, s.keyed(data, 4096)), blocks(fabrics.OpWriteZeroes, 0, 1, fabrics.Data{}), {opcode: fabrics.OpDataset, namespace: 1, data: s.keyed(data, 16), words: [6]uint32{0, 4}}, {opcode: 0x7c, namespace: 1}} {
		if got := one.queues[0].ask(c); got.Status != fabrics.AsymmetricAccessInaccessible {
			t.Errorf("command %#x: %v", c.opcode, got.Status)
		}
	}
	if st := near.server.Stats(); st.Inaccessible != refused+7 || st.Refused+st.Failed != 0 || near.server.NamespaceStats()[0].Inaccessible != st.Inaccessible {
		t.Errorf("%d were counted as inaccessible, %d before, of the namespace %+v, and %d refused", st.Inaccessible, refused, near.server.NamespaceStats(), st.Refused)
	}
	other := blocks(fabrics.OpWrite, 0, 1, s.keyed(data, 4096))
	other.namespace = 2
	one.queues[0].succeeds(other)
	two.queues[0].succeeds(blocks(fabrics.OpWrite, 0, 1, s.keyed(data, 4096)))

	one.admin.awaits()
	change(near, fabrics.ANAInaccessible, fabrics.ANANonOptimized) // nothing changes, so nobody is told
	change(near, fabrics.ANAOptimized, fabrics.ANANonOptimized)
	one.admin.hears(anaChanged)
	has(one, 1, 2)
	one.queues[0].succeeds(blocks(fabrics.OpRead, 0, 1, s.keyed(back, 4096)))
	if page := one.admin.logPage(anaPage, at); binary.LittleEndian.Uint64(page) != 2 || binary.LittleEndian.Uint64(page[24:]) != 2 || binary.LittleEndian.Uint64(page[60:]) != 0 {
		t.Errorf("counts of changes: %x", page[:88])
	}
	near.rest()
	far.rest()
}

// TestControllers: the numbers of controllers stay within their range, and one that has just gone is
// used last.
func TestControllers(t *testing.T) {
	r, s := newSoftRig(t)
	v := r.serve(Config{Sessions: 3, Queues: 1, Depth: 32, Capsule: 4096, Small: 4, Large: 4, FirstController: 7, LastController: 9, Subsystems: []Subsystem{{NQN: softNQN, AnyHost: true, Namespaces: []Namespace{{ID: 1, Disk: r.zram(16 << 20)}}}}})
	for _, want := range []uint16{7, 8, 9, 7} {
		h := s.connects(softHost, 0, 32)
		if h.controller != want {
			t.Errorf("controller %d, not %d", h.controller, want)
		}
		h.admin.close()
		testenv.Wait(t, waitLimit, "the host to be gone", func() bool { return v.server.Stats().Hosts == 0 })
	}
}

// TestANARefused: what no host could use is refused in words.
func TestANARefused(t *testing.T) {
	r, _ := newSoftRig(t)
	book := r.region.NewBook("worker")
	t.Cleanup(func() { r.check(book.Close()) })
	hands, err := book.NewHolder(umem.OwnerWorker, "hands")
	r.must(err)
	t.Cleanup(func() { hands.Close() })
	for _, c := range []struct {
		want   string
		config Config
	}{
		{"as many as sessions", Config{Sessions: 4, FirstController: 1, LastController: 3}},
		{"the last 65519", Config{Sessions: 4, FirstController: 65530, LastController: 65535}},
		{"the first is 1", Config{Sessions: 4, LastController: 100}},
		{"controllers 9 to 5", Config{Sessions: 4, FirstController: 9, LastController: 5}},
		{"4 is no ANA state", Config{Subsystems: []Subsystem{{NQN: softNQN, AnyHost: true, Namespaces: []Namespace{{ID: 1, Disk: r.zram(16 << 20), ANA: 4}}}}}},
	} {
		c.config.Endpoint, c.config.Worker = r.endpoint, hands
		if c.config.Subsystems == nil {
			c.config.Subsystems = []Subsystem{{NQN: softNQN, AnyHost: true}}
		}
		if v, err := Open(c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q is not in %v", c.want, err)
			if err == nil {
				r.check(v.Close())
			}
		}
	}
}
