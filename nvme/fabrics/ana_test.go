package fabrics

import (
	"slices"
	"testing"
)

// logPageOf reads n bytes of a log page from an offset.
func logPageOf(c *Controller, page, specific uint32, at uint64, n int) ([]byte, Status) {
	b := make([]byte, n)
	words := uint32(n/4 - 1)
	_, s := c.Admin(&Command{Opcode: OpGetLogPage, Namespace: allNamespaces, Words: [6]uint32{page | specific<<8 | words<<16, words >> 16, uint32(at), uint32(at >> 32)}}, b)
	return b, s
}

// TestANAPage: the page has a group for each namespace, by number, in the layout of struct
// nvme_ana_rsp_hdr and nvme_ana_group_desc.
func TestANAPage(t *testing.T) {
	c := enabled(t, newController())
	if !c.Subsystem.SetANA(c.Subsystem.Namespace(5), ANAInaccessible) || c.Subsystem.SetANA(c.Subsystem.Namespace(5), ANAInaccessible) || c.Subsystem.SetANA(c.Subsystem.Namespace(2), ANAOptimized) {
		t.Error("a change of the state is wrongly reported")
	}
	whole := raw(t, 128, `0100000000000000 0200 000000000000
		02000000 01000000 0000000000000000 01 000000000000000000000000000000 02000000
		05000000 01000000 0100000000000000 03 000000000000000000000000000000 05000000`)
	if b, s := logPageOf(c, logANA, 0, 0, 128); s != Success || !slices.Equal(b, whole) {
		t.Errorf("%v\n%x, not\n%x", s, b, whole)
	}
	if b, s := logPageOf(c, logANA, 0, 52, 36); s != Success || !slices.Equal(b, whole[52:88]) {
		t.Errorf("the second group alone: %v, %x", s, b)
	}
	groups := raw(t, 80, `0100000000000000 0200 000000000000
		02000000 00000000 0000000000000000 01 000000000000000000000000000000
		05000000 00000000 0100000000000000 03 000000000000000000000000000000`)
	if b, s := logPageOf(c, logANA, anaGroupsOnly, 0, 80); s != Success || !slices.Equal(b, groups) {
		t.Errorf("groups alone: %v\n%x, not\n%x", s, b, groups)
	}
	for at, want := range map[uint64]Status{88: Success, 92: InvalidField | DoNotRetry, 2: InvalidField | DoNotRetry, 1 << 63: InvalidField | DoNotRetry} {
		if _, s := logPageOf(c, logANA, 0, at, 4); s != want {
			t.Errorf("from %d on: %v, not %v", at, s, want)
		}
	}
	c.Subsystem.Namespaces = nil
	if b, s := logPageOf(c, logANA, 0, 0, 128); s != Success || le.Uint64(b) != 1 || !slices.Equal(b[8:], make([]byte, 120)) {
		t.Errorf("without namespaces: %v, %x", s, b)
	}
	for id := uint32(MaxNamespace); id > 0; id-- {
		c.Subsystem.Namespaces = append(c.Subsystem.Namespaces, &Namespace{ID: id})
	}
	if b, s := logPageOf(c, logANA, 0, 0, ANALogLen); s != Success || le.Uint16(b[8:]) != MaxNamespace || le.Uint32(b[ANALogLen-4:]) != MaxNamespace {
		t.Errorf("of as many namespaces as can be: %v, %d groups, the last of %d", s, le.Uint16(b[8:]), le.Uint32(b[ANALogLen-4:]))
	}
}

// TestANAFields: Identify says that there are states, and which group a namespace is in.
func TestANAFields(t *testing.T) {
	c := enabled(t, newController())
	b := make([]byte, IdentifyLen)
	ask := func(cns, namespace uint32) {
		t.Helper()
		clear(b)
		if _, s := c.Admin(&Command{Opcode: OpIdentify, Namespace: namespace, Words: [6]uint32{cns}}, b); s != Success {
			t.Fatal(s)
		}
	}
	fields := func(what string, want ...uint64) {
		t.Helper()
		ask(cnsController, 0)
		if got := []uint64{uint64(b[76]), uint64(le.Uint32(b[92:])), uint64(b[343]), uint64(le.Uint32(b[344:])), uint64(le.Uint32(b[348:])), uint64(le.Uint32(b[540:]))}; !slices.Equal(got, want) || (b[342] > 0) != (want[2] > 0) {
			t.Errorf("%s: CMIC, OAES, ANACAP, ANAGRPMAX, NANAGRPID and MNAN are %#x, not %#x, and ANATT %d", what, got, want, b[342])
		}
	}
	fields("with states", 0x0b, 1<<8|1<<11, 7, 1024, 1024, 1024)
	c.Subsystem.SetANA(c.Subsystem.Namespace(2), ANAInaccessible)
	for id, used := range map[uint32]uint64{5: 256, 2: 0} {
		if ask(cnsNamespace, id); le.Uint64(b[8:]) == 0 || le.Uint64(b[16:]) != used || b[30] != 1 || le.Uint32(b[92:]) != id {
			t.Errorf("namespace %d: NCAP %d, NUSE %d, NMIC %d, ANAGRPID %d", id, le.Uint64(b[8:]), le.Uint64(b[16:]), b[30], le.Uint32(b[92:]))
		}
	}
	// struct nvme_id_ns_cs_indep: NMIC, ANAGRPID, NSATTR and NSTAT
	if ask(cnsIndependent, 2); !slices.Equal(b[:16], raw(t, 16, "00 01 0000 02000000 01 0000000000 01 00")) {
		t.Errorf("independent of the command set: %x", b[:16])
	}
	c.Subsystem.Transfer = ANALogLen - 1
	fields("with transfers that are too short", 0x03, 1<<8, 0, 0, 0, 0)
	if ask(cnsNamespace, 5); le.Uint32(b[92:]) != 0 {
		t.Errorf("a group without states: %d", le.Uint32(b[92:]))
	}
	if _, s := logPageOf(c, logANA, 0, 0, 16); s != InvalidLogPage|DoNotRetry {
		t.Errorf("the page without states: %v", s)
	}
}

// TestANAEvents: a host that wants to know of changes is told once until it has read the page.
func TestANAEvents(t *testing.T) {
	c := enabled(t, newController())
	want := func(bits uint32) {
		t.Helper()
		if _, s := c.Admin(&Command{Opcode: OpSetFeatures, Words: [6]uint32{featAsyncEvents, bits}}, nil); s != Success {
			t.Fatal(s)
		}
	}
	want(wantNamespaces)
	c.ANAChanged()
	if r, is := c.Event(); is {
		t.Errorf("an event that the host does not want: %#x", r)
	}
	want(wantNamespaces | wantANA)
	if r, is := c.Event(); !is || r != 2|3<<8|0x0c<<16 {
		t.Errorf("%#x, %v", r, is)
	}
	c.ANAChanged()
	if _, is := c.Event(); is {
		t.Error("told again before the page was read")
	}
	const retain = 1 << 7 // RAE
	if logPageOf(c, logANA, retain, 0, 16); !c.anaTold {
		t.Error("an event that is retained is over")
	}
	logPageOf(c, logANA, 0, 0, 16)
	if _, is := c.Event(); is {
		t.Error("told of what the host has read")
	}
	c.ANAChanged()
	c.Changed(5)
	for _, want := range []uint64{2 | 4<<16, 2 | 3<<8 | 0x0c<<16} {
		if r, is := c.Event(); !is || r != want {
			t.Errorf("%#x, %v, not %#x", r, is, want)
		}
	}
}

// TestMissing: a host that is told of removed namespaces shall try another path to one. A namespace that
// never was, or is not reported to such a host, is an invalid one.
func TestMissing(t *testing.T) {
	c := enabled(t, newController())
	is := func(why string, id uint32, want Status) {
		t.Helper()
		if s := c.Missing(id); s != want {
			t.Errorf("%s: %v, not %v", why, s, want)
		}
	}
	all := c.Subsystem.Namespaces
	c.wanted = wantNamespaces
	is("never there", 7, InvalidNamespace|DoNotRetry)
	c.Subsystem.Namespaces = slices.DeleteFunc(slices.Clone(all), func(n *Namespace) bool { return n.ID == 5 })
	for range 2 {
		c.Changed(5)
	}
	is("removed", 5, AsymmetricAccessInaccessible)
	c.wanted = wantANA
	is("removed, and the host is not told", 5, InvalidNamespace|DoNotRetry)
	c.wanted = wantNamespaces
	c.Subsystem.Transfer = ANALogLen - 1
	is("removed, and there are no states", 5, InvalidNamespace|DoNotRetry)
	c.Subsystem.Transfer = ANALogLen
	c.Subsystem.Namespaces = all
	if c.Changed(5); len(c.removed) > 0 {
		t.Errorf("%v are there again", c.removed)
	}
}
