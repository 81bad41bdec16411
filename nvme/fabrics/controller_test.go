package fabrics

import (
	"net/netip"
	"strings"
	"testing"
)

func newController() *Controller {
	return &Controller{ID: 7, KeepAlive: 5000, Host: ConnectData{Host: [16]byte{1, 2, 3}}, Subsystem: &Subsystem{NQN: "nqn.2026-01.com.example:one", Serial: "one", Model: "model", Firmware: "1",
		Namespaces: []*Namespace{{ID: 5, Size: 1 << 20, Shift: 12, UUID: [16]byte{15: 5}}, {ID: 2, Size: 1<<20 + 100, Shift: 9, ReadOnly: true, UUID: [16]byte{15: 2}}},
		Transfer:   1 << 17, Capsule: 4096, Queues: 4, Depth: 128}}
}

// property returns a Property Get or Set.
func property(kind uint8, offset, value, wide uint32) *Command {
	return &Command{Opcode: OpFabrics, Fabrics: kind, Words: [6]uint32{wide, offset, value}}
}

// enabled enables the controller as the kernel's initiator does.
func enabled(t testing.TB, c *Controller) *Controller {
	t.Helper()
	if _, s := c.Admin(property(PropertySet, propCC, ccEnable|ccEntriesIO, 0), nil); s != Success || !c.Ready() {
		t.Fatalf("%v, CSTS %#x", s, c.csts)
	}
	return c
}

func TestProperties(t *testing.T) {
	c := newController()
	if _, s := c.Admin(&Command{Opcode: OpIdentify, Words: [6]uint32{cnsController}}, make([]byte, IdentifyLen)); s != CommandSequence|DoNotRetry {
		t.Errorf("identify before it is enabled: %v", s)
	}
	if v, s := c.Admin(property(PropertyGet, propCAP, 0, 1), nil); v != 127|1<<16|30<<24|1<<37 || s != Success {
		t.Errorf("CAP %#x, %v", v, s)
	}
	if v, s := c.Admin(property(PropertyGet, propVS, 0, 0), nil); v != Version || s != Success {
		t.Errorf("VS %#x, %v", v, s)
	}
	for _, p := range []*Command{property(PropertyGet, propCAP, 0, 0), property(PropertyGet, 0x30, 0, 1), property(PropertySet, propVS, 1, 0), property(PropertySet, propCC, 1, 1)} {
		if _, s := c.Admin(p, nil); s != InvalidField|DoNotRetry {
			t.Errorf("%+v: %v", p, s)
		}
	}
	enabled(t, c)
	if _, s := c.Admin(property(PropertySet, propCC, ccEnable|ccEntriesIO|1<<14, 0), nil); s != Success || c.csts != cstsShutdown || c.Ready() {
		t.Errorf("%v, CSTS %#x after shutdown", s, c.csts)
	}
	if _, s := c.Admin(property(PropertySet, propCC, 0, 0), nil); s != Success || !c.Reset() || c.Reset() {
		t.Errorf("%v after a reset", s)
	}
	if _, s := c.Admin(property(PropertySet, propCC, ccEnable, 0), nil); s != Success || c.csts != cstsFatal {
		t.Errorf("%v, CSTS %#x with entries of no size", s, c.csts)
	}
}

// TestIdentify: the fields for which the kernel's initiator would refuse a controller are at their places.
func TestIdentify(t *testing.T) {
	c := enabled(t, newController())
	b := make([]byte, IdentifyLen)
	ask := func(cns, namespace uint32) Status {
		clear(b)
		_, s := c.Admin(&Command{Opcode: OpIdentify, Namespace: namespace, Words: [6]uint32{cns}}, b)
		return s
	}
	if s := ask(cnsController, 0); s != Success {
		t.Fatal(s)
	}
	for _, f := range []struct {
		name      string
		got, want uint64
	}{
		{"MDTS", uint64(b[77]), 5}, {"CNTLID", uint64(le.Uint16(b[78:])), 7}, {"VER", uint64(le.Uint32(b[80:])), Version}, {"CNTRLTYPE", uint64(b[111]), 1},
		{"KAS", uint64(le.Uint16(b[320:])), 10}, {"SQES", uint64(b[512]), 0x66}, {"CQES", uint64(b[513]), 0x44}, {"MAXCMD", uint64(le.Uint16(b[514:])), 128},
		{"NN", uint64(le.Uint32(b[516:])), MaxNamespace}, {"VWC", uint64(b[525]) & 1, 1}, {"SGLS", uint64(le.Uint32(b[536:])), 1 | 1<<2 | 1<<20}, {"IOCCSZ", uint64(le.Uint32(b[1792:])), (64 + 4096) / 16},
		{"IORCSZ", uint64(le.Uint32(b[1796:])), 1}, {"ICDOFF", uint64(le.Uint16(b[1800:])), 0}, {"MSDBD", uint64(b[1803]), 1},
	} {
		if f.got != f.want {
			t.Errorf("%s is %d, not %d", f.name, f.got, f.want)
		}
	}
	if string(b[4:24]) != "one"+strings.Repeat(" ", 17) || string(b[768:796]) != "nqn.2026-01.com.example:one\x00" {
		t.Errorf("%q, %q", b[4:24], b[768:796])
	}
	if s := ask(cnsActive, 0); s != Success || le.Uint32(b) != 2 || le.Uint32(b[4:]) != 5 || le.Uint32(b[8:]) != 0 {
		t.Errorf("%v, %x", s, b[:12])
	}
	if s := ask(cnsActive, 2); s != Success || le.Uint32(b) != 5 || le.Uint32(b[4:]) != 0 {
		t.Errorf("%v, %x", s, b[:12])
	}
	if s := ask(cnsNamespace, 2); s != Success || le.Uint64(b) != 2048 || b[99] != 1 || b[130] != 9 {
		t.Errorf("%v, %d blocks, NSATTR %d, LBADS %d", s, le.Uint64(b), b[99], b[130])
	}
	if s := ask(cnsDescriptors, 5); s != Success || b[0] != 2 || b[1] != 16 || b[19] != 5 || b[20] != 3 || b[39] != 5 || b[40] != 0 {
		t.Errorf("%v, %x", s, b[:44])
	}
	for cns, namespace := range map[uint32]uint32{cnsDescriptors: 3, cnsActive: allNamespaces, cnsNamespace: 0, cnsIndependent: 1} {
		if s := ask(cns, namespace); s != InvalidNamespace|DoNotRetry {
			t.Errorf("CNS %#x of namespace %d: %v", cns, namespace, s)
		}
	}
	if s := ask(0x55, 1); s != InvalidField|DoNotRetry {
		t.Error(s)
	}
}

// TestRanges: a command whose range leaves a namespace, or whose length is wrong, is refused.
func TestRanges(t *testing.T) {
	n := &Namespace{ID: 1, Size: 1 << 20, Shift: 9}
	for _, c := range []struct {
		opcode       uint8
		first, count uint64
		data         uint32
		want         Status
	}{
		{OpRead, 0, 1, 512, Success}, {OpRead, 2047, 1, 512, Success}, {OpRead, 2047, 2, 1024, LBAOutOfRange}, {OpRead, 2048, 1, 512, LBAOutOfRange},
		{OpWrite, 1<<64 - 1, 2, 1024, LBAOutOfRange}, {OpWrite, 0, 2, 512, InvalidSGLLength}, {OpWrite, 0, 1, 1024, InvalidSGLLength}, {OpRead, 0, 512, 512 * 512, InvalidField},
		{OpWriteZeroes, 0, 2048, 0, Success}, {OpWriteZeroes, 0, 2048, 512, InvalidSGLLength}, {OpCompare, 7, 8, 4096, Success},
	} {
		cmd := &Command{Opcode: c.opcode, Words: [6]uint32{uint32(c.first), uint32(c.first >> 32), uint32(c.count - 1)}}
		if c.data > 0 {
			cmd.Data = Data{Place: InHost, Length: c.data}
		}
		r, s := n.Check(cmd, 1<<17)
		if s.Code() != c.want || s == Success && (r != Range{c.first << 9, c.count << 9}) {
			t.Errorf("%+v: %v, %+v", c, s, r)
		}
	}
	n.ReadOnly = true
	if _, s := n.Check(&Command{Opcode: OpWriteZeroes}, 1<<17); s.Code() != WriteProtected {
		t.Error(s)
	}
	if _, _, s := n.Dataset(&Command{Words: [6]uint32{0, 1 << 2}, Data: Data{Place: InHost, Length: 16}}); s.Code() != WriteProtected {
		t.Error(s)
	}
}

// TestDataset: the data of Dataset Management may be longer than its ranges, as the kernel's is,
// but not longer than the largest number of ranges.
func TestDataset(t *testing.T) {
	n := &Namespace{ID: 1, Size: 1 << 20, Shift: 9}
	for _, c := range []struct {
		last, length uint32
		want         Status
	}{{0, 16, Success}, {0, 4096, Success}, {1, 16, InvalidSGLLength}, {255, 4096, Success}, {255, 4080, InvalidSGLLength}, {0, 4112, InvalidSGLLength}, {0, 0, InvalidSGLLength}} {
		ranges, discard, s := n.Dataset(&Command{Words: [6]uint32{c.last, 1 << 2}, Data: Data{Place: InHost, Length: c.length}})
		if s.Code() != c.want || !discard || ranges != int(c.last)+1 {
			t.Errorf("%+v: %d, %v, %v", c, ranges, discard, s)
		}
	}
}

func TestEvents(t *testing.T) {
	c := enabled(t, newController())
	c.Changed(5)
	if _, is := c.Event(); is {
		t.Error("an event that the host does not want")
	}
	if _, s := c.Admin(&Command{Opcode: OpSetFeatures, Words: [6]uint32{featAsyncEvents, wantNamespaces}}, nil); s != Success {
		t.Error(s)
	}
	if r, is := c.Event(); !is || r != 2|4<<16 {
		t.Errorf("%#x, %v", r, is)
	}
	c.Changed(2)
	if _, is := c.Event(); is {
		t.Error("told again before the page was read")
	}
	b := make([]byte, 4096)
	if _, s := c.Admin(&Command{Opcode: OpGetLogPage, Words: [6]uint32{logChanged | 1023<<16}}, b); s != Success || le.Uint32(b) != 2 || le.Uint32(b[4:]) != 5 {
		t.Errorf("%v, %x", s, b[:12])
	}
	c.Changed(2)
	if _, is := c.Event(); !is {
		t.Error("not told of what changed after the page was read")
	}
}

func TestDiscoveryLog(t *testing.T) {
	c := enabled(t, &Controller{Subsystem: &Subsystem{NQN: DiscoveryNQN, Transfer: 1 << 17, Queues: 1, Depth: 32, Discover: func(*Controller) (uint64, []Entry) {
		return 9, []Entry{{"nqn.2026-01.com.example:one", false, netip.MustParseAddrPort("10.0.0.1:4420")}, {DiscoveryNQN, true, netip.MustParseAddrPort("[fd00::1]:4420")}}
	}}})
	b := make([]byte, 4*EntryLen)
	if _, s := c.Admin(&Command{Opcode: OpGetLogPage, Words: [6]uint32{logDiscovery | (4*EntryLen/4-1)<<16}}, b); s != Success {
		t.Fatal(s)
	}
	one, two := b[EntryLen:2*EntryLen], b[2*EntryLen:3*EntryLen]
	if le.Uint64(b) != 9 || le.Uint64(b[8:]) != 2 || one[0] != 1 || one[1] != 1 || one[2] != 2 || strings.TrimRight(string(one[32:64]), " ") != "4420" ||
		strings.TrimRight(string(one[256:512]), "\x00") != "nqn.2026-01.com.example:one" || strings.TrimRight(string(one[512:768]), " ") != "10.0.0.1" || one[768] != 1 || one[770] != 1 ||
		two[1] != 2 || two[2] != 3 || strings.TrimRight(string(two[512:768]), " ") != "fd00::1" {
		t.Errorf("%x\n%q\n%q", b[:32], one, two)
	}
	if _, s := c.Admin(&Command{Opcode: OpGetLogPage, Words: [6]uint32{logDiscovery, 0, 8}}, b[:4]); s != Success || le.Uint32(b) != 2 {
		t.Errorf("a part of it: %v, %d", s, le.Uint32(b))
	}
	if _, s := c.Admin(&Command{Opcode: OpSetFeatures, Words: [6]uint32{featQueues}}, nil); s != InvalidField|DoNotRetry {
		t.Errorf("queues of a discovery controller: %v", s)
	}
}

// FuzzCapsule: whatever a host sends, the data fits its buffer, and no range leaves a namespace.
func FuzzCapsule(f *testing.F) {
	f.Add(make([]byte, CommandLen), true)
	f.Add([]byte("\x02\x40..\x02\x00\x00\x00aaaaaaaabbbbbbbbcccccccc\x00\x02\x00dddd\x40\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00eeeeeeeeeeee"), false)
	f.Fuzz(func(t *testing.T, b []byte, ready bool) {
		c := newController()
		if ready {
			enabled(t, c)
		}
		cmd, s := CommandOf(b)
		if s != Success {
			return
		}
		if n := c.DataLength(&cmd); n <= 1<<20 && cmd.Opcode != OpAsyncEvent {
			if _, s := c.Admin(&cmd, make([]byte, n)); s == Success && cmd.Opcode != OpFabrics && !ready {
				t.Errorf("%+v is done before the controller is ready", cmd)
			}
		}
		n := c.Subsystem.Namespace(cmd.Namespace)
		if n == nil {
			return
		}
		if r, s := n.Check(&cmd, c.Subsystem.Transfer); s == Success && (r.Offset+r.Length > n.Size || r.Offset+r.Length < r.Offset || r.Length == 0) {
			t.Errorf("%+v leads to %+v of %d bytes", cmd, r, n.Size)
		}
		if len(b) >= ConnectDataLen {
			if d, _, s := ConnectDataOf(b[:ConnectDataLen]); s == Success && (!ValidNQN(d.HostNQN) || !ValidNQN(d.Subsystem)) {
				t.Errorf("%+v", d)
			}
		}
	})
}

// TestCheckAllocations: a check of a command to a namespace does not allocate.
func TestCheckAllocations(t *testing.T) {
	c := newController()
	b := raw(t, CommandLen, "02 40 0300 02000000 0000000000000000 0000000000000000 0010000000ffff00 000200 78563412 4f")
	response := make([]byte, CompletionLen)
	if n := testing.AllocsPerRun(100, func() {
		cmd, s := CommandOf(b)
		if s == Success {
			_, s = c.Subsystem.Namespace(cmd.Namespace).Check(&cmd, c.Subsystem.Transfer)
		}
		(&Completion{ID: cmd.ID, Status: s}).Put(response)
	}); n != 0 || le.Uint16(response[14:]) != 0 {
		t.Errorf("%v allocations, status %#x", n, le.Uint16(response[14:])>>1)
	}
}
