package fabrics

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// Hosts of these tests, and their keys.
var hostA, hostB, hostC = [16]byte{'A'}, [16]byte{'B'}, [16]byte{'C'}

// named is a host with an identifier, and a name of its own.
func named(id [16]byte) HostIdentity { return HostIdentity{id, fmt.Sprintf("nqn.host:%x", id[0])} }

func registers(key uint64) ReservationCommand {
	return ReservationCommand{Opcode: OpReservationRegister, Other: key}
}

func unregisters(key uint64) ReservationCommand {
	return ReservationCommand{Opcode: OpReservationRegister, Action: actUnregister, Key: key}
}

func acquires(key uint64, t ReservationType) ReservationCommand {
	return ReservationCommand{Opcode: OpReservationAcquire, Key: key, Type: t}
}

func preempts(key, other uint64, t ReservationType) ReservationCommand {
	return ReservationCommand{Opcode: OpReservationAcquire, Action: actPreempt, Key: key, Other: other, Type: t}
}

func releases(key uint64, t ReservationType) ReservationCommand {
	return ReservationCommand{Opcode: OpReservationRelease, Key: key, Type: t}
}

func clears(key uint64) ReservationCommand {
	return ReservationCommand{Opcode: OpReservationRelease, Action: actClear, Key: key}
}

// step is a command of a host, and what it must lead to.
type step struct {
	host    [16]byte
	command ReservationCommand
	want    Status // code
	keys    []uint64
	is      ReservationType
	notices []Notice
}

// TestReservationSteps: the rules of the specification, command by command.
func TestReservationSteps(t *testing.T) {
	none := []uint64(nil)
	for name, steps := range map[string][]step{
		"register": {
			{hostA, registers(0xa), Success, []uint64{0xa}, 0, nil},
			{hostA, registers(0xa), Success, []uint64{0xa}, 0, nil},
			{hostA, registers(0xaa), ReservationConflict, []uint64{0xa}, 0, nil},
			{hostA, ReservationCommand{Opcode: OpReservationRegister, Action: actReplace, Key: 1, Other: 2}, ReservationConflict, []uint64{0xa}, 0, nil},
			{hostA, ReservationCommand{Opcode: OpReservationRegister, Action: actReplace, Key: 0xa, Other: 2}, Success, []uint64{2}, 0, nil},
			{hostA, ReservationCommand{Opcode: OpReservationRegister, Action: actReplace, IgnoreKey: true, Other: 3}, Success, []uint64{3}, 0, nil},
			{hostB, ReservationCommand{Opcode: OpReservationRegister, Action: actReplace, Other: 4}, ReservationConflict, []uint64{3}, 0, nil},
			{hostB, ReservationCommand{Opcode: OpReservationRegister, Action: actReplace, IgnoreKey: true, Other: 4}, Success, []uint64{3, 4}, 0, nil},
			{hostC, unregisters(3), ReservationConflict, []uint64{3, 4}, 0, nil},
			{hostA, unregisters(4), ReservationConflict, []uint64{3, 4}, 0, nil},
			{hostA, unregisters(3), Success, []uint64{4}, 0, nil},
			{hostB, ReservationCommand{Opcode: OpReservationRegister, Action: actUnregister, IgnoreKey: true}, Success, none, 0, nil},
			{[16]byte{}, registers(1), OperationDenied, none, 0, nil},
		},
		"acquire and release": {
			{hostA, acquires(0xa, WriteExclusive), ReservationConflict, none, 0, nil},
			{hostA, registers(0xa), Success, []uint64{0xa}, 0, nil},
			{hostB, registers(0xb), Success, []uint64{0xa, 0xb}, 0, nil},
			{hostA, acquires(0xb, WriteExclusive), ReservationConflict, []uint64{0xa, 0xb}, 0, nil},
			{hostA, releases(0xa, WriteExclusive), Success, []uint64{0xa, 0xb}, 0, nil},
			{hostA, acquires(0xa, WriteExclusive), Success, []uint64{0xa, 0xb}, WriteExclusive, nil},
			{hostA, acquires(0xa, WriteExclusive), Success, []uint64{0xa, 0xb}, WriteExclusive, nil},
			{hostA, acquires(0xa, ExclusiveAccess), ReservationConflict, []uint64{0xa, 0xb}, WriteExclusive, nil},
			{hostB, acquires(0xb, WriteExclusive), ReservationConflict, []uint64{0xa, 0xb}, WriteExclusive, nil},
			{hostB, releases(0xb, WriteExclusive), Success, []uint64{0xa, 0xb}, WriteExclusive, nil},
			{hostA, releases(0xa, ExclusiveAccess), ReservationConflict, []uint64{0xa, 0xb}, WriteExclusive, nil},
			{hostA, releases(0xa, WriteExclusive), Success, []uint64{0xa, 0xb}, 0, nil},
			{hostB, acquires(0xb, ExclusiveAccessRegistrants), Success, []uint64{0xa, 0xb}, ExclusiveAccessRegistrants, nil},
			{hostB, releases(0xb, ExclusiveAccessRegistrants), Success, []uint64{0xa, 0xb}, 0, []Notice{{hostA, ReservationReleased}}},
		},
		"the holder leaves": {
			{hostA, registers(0xa), Success, []uint64{0xa}, 0, nil},
			{hostB, registers(0xb), Success, []uint64{0xa, 0xb}, 0, nil},
			{hostA, acquires(0xa, WriteExclusiveRegistrants), Success, []uint64{0xa, 0xb}, WriteExclusiveRegistrants, nil},
			{hostA, unregisters(0xa), Success, []uint64{0xb}, 0, []Notice{{hostB, ReservationReleased}}},
		},
		"all registrants hold": {
			{hostA, registers(0xa), Success, []uint64{0xa}, 0, nil},
			{hostA, acquires(0xa, WriteExclusiveAll), Success, []uint64{0xa}, WriteExclusiveAll, nil},
			{hostB, registers(0xb), Success, []uint64{0xa, 0xb}, WriteExclusiveAll, nil},
			{hostB, acquires(0xb, WriteExclusiveAll), Success, []uint64{0xa, 0xb}, WriteExclusiveAll, nil},
			{hostA, unregisters(0xa), Success, []uint64{0xb}, WriteExclusiveAll, nil},
			{hostB, unregisters(0xb), Success, none, 0, nil},
		},
		"clear": {
			{hostA, registers(0xa), Success, []uint64{0xa}, 0, nil},
			{hostB, registers(0xb), Success, []uint64{0xa, 0xb}, 0, nil},
			{hostA, acquires(0xa, ExclusiveAccess), Success, []uint64{0xa, 0xb}, ExclusiveAccess, nil},
			{hostB, clears(0xa), ReservationConflict, []uint64{0xa, 0xb}, ExclusiveAccess, nil},
			{hostB, clears(0xb), Success, none, 0, []Notice{{hostA, ReservationPreempted}}},
		},
		"preempt the holder": {
			{hostA, registers(0xa), Success, []uint64{0xa}, 0, nil},
			{hostB, registers(0xb), Success, []uint64{0xa, 0xb}, 0, nil},
			{hostC, registers(0xa), Success, []uint64{0xa, 0xb, 0xa}, 0, nil},
			{hostA, acquires(0xa, WriteExclusiveRegistrants), Success, []uint64{0xa, 0xb, 0xa}, WriteExclusiveRegistrants, nil},
			{hostB, preempts(0xa, 0xa, ExclusiveAccess), ReservationConflict, []uint64{0xa, 0xb, 0xa}, WriteExclusiveRegistrants, nil},
			{hostB, preempts(0xb, 0, ExclusiveAccess), InvalidField, []uint64{0xa, 0xb, 0xa}, WriteExclusiveRegistrants, nil},
			{hostB, preempts(0xb, 0xa, ExclusiveAccess), Success, []uint64{0xb}, ExclusiveAccess, []Notice{{hostA, RegistrationPreempted}, {hostC, RegistrationPreempted}}},
			{hostA, registers(0xa), Success, []uint64{0xb, 0xa}, ExclusiveAccess, nil},
			{hostB, preempts(0xb, 0xb, WriteExclusive), Success, []uint64{0xb, 0xa}, WriteExclusive, nil},
		},
		"preempt a registrant": {
			{hostA, registers(0xa), Success, []uint64{0xa}, 0, nil},
			{hostB, registers(0xb), Success, []uint64{0xa, 0xb}, 0, nil},
			{hostC, registers(0xc), Success, []uint64{0xa, 0xb, 0xc}, 0, nil},
			{hostA, preempts(0xa, 0xd, WriteExclusive), ReservationConflict, []uint64{0xa, 0xb, 0xc}, 0, nil},
			{hostA, preempts(0xa, 0xb, WriteExclusive), Success, []uint64{0xa, 0xc}, 0, []Notice{{hostB, RegistrationPreempted}}},
			{hostC, acquires(0xc, WriteExclusive), Success, []uint64{0xa, 0xc}, WriteExclusive, nil},
			{hostC, preempts(0xc, 0xa, WriteExclusive), Success, []uint64{0xc}, WriteExclusive, []Notice{{hostA, RegistrationPreempted}}},
		},
		"preempt all": {
			{hostA, registers(0xa), Success, []uint64{0xa}, 0, nil},
			{hostB, registers(0xb), Success, []uint64{0xa, 0xb}, 0, nil},
			{hostC, registers(0xc), Success, []uint64{0xa, 0xb, 0xc}, 0, nil},
			{hostA, acquires(0xa, ExclusiveAccessAll), Success, []uint64{0xa, 0xb, 0xc}, ExclusiveAccessAll, nil},
			{hostB, preempts(0xb, 0xa, WriteExclusive), Success, []uint64{0xb, 0xc}, ExclusiveAccessAll, []Notice{{hostA, RegistrationPreempted}}},
			{hostB, preempts(0xb, 0, WriteExclusive), Success, []uint64{0xb}, WriteExclusive, []Notice{{hostC, RegistrationPreempted}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Reservations{}
			for i, s := range steps {
				before := r.Clone()
				notices, changed, status := r.Apply(named(s.host), s.command)
				var keys []uint64
				for _, one := range r.Registrants {
					keys = append(keys, one.Key)
				}
				if status.Code() != s.want || !slices.Equal(keys, s.keys) || r.Type != s.is || !slices.Equal(notices, s.notices) || changed == r.equal(before) {
					t.Fatalf("step %d, %+v: %v, keys %x, %v, notices %v, changed %v", i, s.command, status, keys, r.Type, notices, changed)
				}
				if err := r.Check(); err != nil {
					t.Fatalf("step %d: %v", i, err)
				}
			}
		})
	}
}

// TestReservationGeneration: the generation counts each Register, Preempt and Clear that succeeds, and nothing else.
func TestReservationGeneration(t *testing.T) {
	r := &Reservations{}
	var want uint32
	for i, s := range []struct {
		command ReservationCommand
		want    Status
		counts  bool
	}{
		{registers(0xa), Success, true},
		{registers(0xa), Success, true}, // the host is registered with this key
		{registers(0xb), ReservationConflict, false},
		{ReservationCommand{Opcode: OpReservationRegister, Action: actReplace, Key: 0xa, Other: 0xb}, Success, true},
		{ReservationCommand{Opcode: OpReservationRegister, Action: actReplace, Key: 0xb, Other: 0xb}, Success, true},
		{acquires(0xb, WriteExclusive), Success, false},
		{acquires(0xb, WriteExclusive), Success, false},
		{preempts(0xb, 0xb, ExclusiveAccess), Success, true},
		{preempts(0xb, 0xb, ExclusiveAccess), Success, true},
		{preempts(0xb, 0xc, ExclusiveAccess), ReservationConflict, false},
		{releases(0xb, WriteExclusive), ReservationConflict, false},
		{releases(0xb, ExclusiveAccess), Success, false},
		{unregisters(0xa), ReservationConflict, false},
		{unregisters(0xb), Success, true},
		{registers(0xc), Success, true},
		{clears(0xc), Success, true},
	} {
		_, changed, status := r.Apply(named(hostA), s.command)
		if s.counts {
			want++
		}
		if status.Code() != s.want || r.Generation != want || s.counts && !changed {
			t.Fatalf("step %d, %+v: %v, generation %d, not %d, changed %v", i, s.command, status, r.Generation, want, changed)
		}
	}
}

// TestReservationConflicts: who may do what while A holds a reservation, B is registered and C is not.
func TestReservationConflicts(t *testing.T) {
	reads, writes := []uint8{OpRead, OpCompare}, []uint8{OpWrite, OpWriteZeroes, OpDataset, OpFlush, 0x7c}
	for kind, may := range map[ReservationType][3]string{0: {"rw", "rw", "rw"}, WriteExclusive: {"rw", "r", "r"}, ExclusiveAccess: {"rw", "", ""}, WriteExclusiveRegistrants: {"rw", "rw", "r"},
		ExclusiveAccessRegistrants: {"rw", "rw", ""}, WriteExclusiveAll: {"rw", "rw", "r"}, ExclusiveAccessAll: {"rw", "rw", ""}} {
		r := &Reservations{Registrants: []Registrant{{Host: hostA, Key: 1}, {Host: hostB, Key: 2}}}
		if kind != 0 {
			r.reserve(hostA, kind)
		}
		for i, host := range [][16]byte{hostA, hostB, hostC} {
			for what, opcodes := range map[string][]uint8{"r": reads, "w": writes, "": nil} {
				for _, op := range opcodes {
					if got, want := r.Conflicts(named(host), op), !bytes.Contains([]byte(may[i]), []byte(what)); got != want {
						t.Errorf("%v: opcode %#x of host %c conflicts: %v", kind, op, host[0], got)
					}
				}
			}
			if r.Conflicts(named(host), OpReservationAcquire) || r.Conflicts(named(host), OpReservationReport) {
				t.Errorf("%v: commands of reservations conflict", kind)
			}
		}
	}
	r := &Reservations{Registrants: []Registrant{{Host: hostA, Key: 1}, {Host: hostB, Key: 2}}, Type: ExclusiveAccessRegistrants, Holder: hostA}
	c := named(hostC)
	if n := testing.AllocsPerRun(100, func() { r.Conflicts(c, OpWrite) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestReservationIdentity: a host with the identifier of another one that is registered has none of its rights, and
// cannot register. A registration of an older release, which has no name, is that of whoever has the identifier.
func TestReservationIdentity(t *testing.T) {
	r, thief := &Reservations{}, HostIdentity{hostA, "nqn.thief"}
	apply := func(host HostIdentity, c ReservationCommand, want Status) {
		t.Helper()
		if _, _, s := r.Apply(host, c); s.Code() != want {
			t.Errorf("%+v of %s: %v", c, host.NQN, s)
		}
	}
	apply(named(hostA), registers(0xa), Success)
	for _, kind := range []ReservationType{WriteExclusive, ExclusiveAccess, WriteExclusiveRegistrants, ExclusiveAccessRegistrants, WriteExclusiveAll, ExclusiveAccessAll} {
		apply(named(hostA), acquires(0xa, kind), Success)
		if !r.Conflicts(thief, OpWrite) || r.Conflicts(named(hostA), OpWrite) {
			t.Errorf("%v: the holder's identifier alone opens the namespace, or the holder is shut out", kind)
		}
		for _, c := range []ReservationCommand{registers(0xa), registers(0xb), unregisters(0xa), acquires(0xa, kind), releases(0xa, kind), clears(0xa), preempts(0xa, 0xa, kind),
			{Opcode: OpReservationRegister, Action: actReplace, IgnoreKey: true, Other: 0xc}} {
			apply(thief, c, ReservationConflict)
		}
		apply(named(hostA), releases(0xa, kind), Success)
	}
	if got := r.Other(thief); got != named(hostA).NQN || r.Other(named(hostA)) != "" || r.Other(named(hostB)) != "" {
		t.Errorf("the identifier is of %q", got)
	}
	r = &Reservations{Type: WriteExclusive, Holder: hostA, Registrants: []Registrant{{Host: hostA, Key: 0xa}}}
	if r.Conflicts(thief, OpWrite) || r.Other(thief) != "" {
		t.Error("a holder whose name was not kept is shut out")
	}
	apply(named(hostA), registers(0xa), Success)
	if !r.Conflicts(thief, OpWrite) || r.Conflicts(named(hostA), OpWrite) {
		t.Error("its name is not kept when it registers again")
	}
}

// TestReservationModel: random commands of hosts never lead to a state that makes no sense, and a
// command that fails changes nothing.
func TestReservationModel(t *testing.T) {
	random := rand.New(rand.NewPCG(37, 4))
	r := &Reservations{}
	counts := map[Status]int{}
	for range 200_000 {
		c := ReservationCommand{Opcode: []uint8{OpReservationRegister, OpReservationAcquire, OpReservationRelease}[random.IntN(3)], Action: uint8(random.IntN(3)), IgnoreKey: random.IntN(4) == 0,
			Type: ReservationType(1 + random.IntN(6)), Key: uint64(random.IntN(4)), Other: uint64(1 + random.IntN(3)), Persist: uint8(random.IntN(2) * 3)}
		if c.Opcode == OpReservationRelease {
			c.Action %= 2
		}
		if c.Opcode == OpReservationAcquire && random.IntN(3) == 0 {
			c.Other = 0
		}
		host := [16]byte{byte(1 + random.IntN(5))}
		before := r.Clone()
		notices, changed, s := r.Apply(named(host), c)
		counts[s.Code()]++
		err := r.Check()
		switch {
		case err != nil, s != Success && (changed || !r.equal(before) || notices != nil), slices.ContainsFunc(notices, func(n Notice) bool { return n.Host == host }):
			t.Fatalf("%+v of %d: %v\n%+v\n%+v\n%v, %v", c, host[0], s, before, r, notices, err)
		case s == Success && c.Opcode == OpReservationAcquire && c.Action == actAcquire && r.Conflicts(named(host), OpWrite):
			t.Fatalf("%d holds %+v, and may not write", host[0], r)
		}
	}
	if counts[Success] < 20_000 || counts[ReservationConflict] < 20_000 {
		t.Errorf("%v", counts)
	}
}

// TestReservationLayout: commands, and the report in the layout of struct nvme_reservation_status_ext.
func TestReservationLayout(t *testing.T) {
	data := raw(t, 16, "0100000000000000 0200000000000000")
	for _, c := range []struct {
		opcode uint8
		word   uint32
		data   []byte
		want   ReservationCommand
		status Status
	}{
		{OpReservationRegister, 3<<30 | 1<<3 | 2, data, ReservationCommand{OpReservationRegister, 2, true, 0, 3, 1, 2}, Success},
		{OpReservationAcquire, 5<<8 | 1, data, ReservationCommand{OpReservationAcquire, 1, false, 5, 0, 1, 2}, Success},
		{OpReservationRelease, 5<<8 | 1, data[:8], ReservationCommand{OpReservationRelease, 1, false, 5, 0, 1, 0}, Success},
		{OpReservationRegister, 1 << 30, data, ReservationCommand{}, InvalidField}, {OpReservationRegister, 3, data, ReservationCommand{}, InvalidField},
		{OpReservationRegister, 0, make([]byte, 16), ReservationCommand{}, InvalidField}, {OpReservationAcquire, 5<<8 | 1<<3, data, ReservationCommand{}, InvalidField},
		{OpReservationAcquire, 0, data, ReservationCommand{}, InvalidField}, {OpReservationAcquire, 7 << 8, data, ReservationCommand{}, InvalidField},
		{OpReservationAcquire, 1<<8 | 3, data, ReservationCommand{}, InvalidField}, {OpReservationRelease, 1<<8 | 2, data[:8], ReservationCommand{}, InvalidField},
		{OpReservationRegister, 0, data[:8], ReservationCommand{}, InvalidSGLLength}, {OpReservationRelease, 0, data, ReservationCommand{}, InvalidSGLLength},
		{OpReservationRegister, 0, nil, ReservationCommand{}, InvalidSGLLength}, {OpRead, 0, nil, ReservationCommand{}, InvalidSGLLength},
	} {
		got, s := ReservationOf(&Command{Opcode: c.opcode, Words: [6]uint32{c.word}}, c.data)
		if s.Code() != c.status || s == Success && got != c.want {
			t.Errorf("%#x %#x: %+v, %v", c.opcode, c.word, got, s)
		}
	}
	r := &Reservations{Generation: 7, Type: WriteExclusive, Holder: hostB, Persist: true, Registrants: []Registrant{{Host: hostA, Key: 0xa1}, {Host: hostB, Key: 0xb1}}}
	whole := raw(t, 192, `07000000 01 0200 0000 01 0000000000000000000000000000 00000000000000000000000000000000000000000000000000000000000000000000000000000000
		ffff 00 0000000000 a100000000000000 41000000000000000000000000000000 0000000000000000000000000000000000000000000000000000000000000000
		ffff 01 0000000000 b100000000000000 42000000000000000000000000000000`)
	for _, n := range []int{192, 256, 64, 24, 4, 100} {
		b := make([]byte, n)
		if r.Report(b); !bytes.Equal(b[:min(n, 192)], whole[:min(n, 192)]) || n > 192 && !bytes.Equal(b[192:], make([]byte, n-192)) {
			t.Errorf("a report of %d bytes:\n%x", n, b)
		}
	}
	if n, s := ReportLength(&Command{Words: [6]uint32{0xffffffff, 1}}); n != 1<<34 || s != Success {
		t.Errorf("%d, %v", n, s)
	}
	if _, s := ReportLength(&Command{}); s.Code() != HostIdentifierFormat {
		t.Errorf("a report with short host identifiers: %v", s)
	}
}

// TestNotices: a host reads its notices one by one, each after an event, unless it has masked them.
func TestNotices(t *testing.T) {
	c := enabled(t, newController())
	if _, s := logPageOf(c, logReservations, 0, 0, 64); s.Code() != InvalidLogPage {
		t.Errorf("without reservations: %v", s)
	}
	identified := func(cns uint32, at int, want uint16) {
		t.Helper()
		b := make([]byte, IdentifyLen)
		if _, s := c.Admin(&Command{Opcode: OpIdentify, Namespace: 2, Words: [6]uint32{cns}}, b); s != Success || le.Uint16(b[at:]) != want {
			t.Errorf("CNS %d: %v, %#x at %d, not %#x", cns, s, le.Uint16(b[at:]), at, want)
		}
	}
	identified(cnsController, 520, 0x0d)
	identified(cnsNamespace, 30, 0x0001)
	c.Subsystem.Reservations = true
	for _, n := range c.Subsystem.Namespaces {
		n.Reservations = &Reservations{Persist: n.ID == 5}
	}
	identified(cnsController, 520, 0x2d)
	identified(cnsNamespace, 30, 0xff01) // NMIC and RESCAP
	identified(cnsIndependent, 1, 0xff01)
	feature := func(opcode uint8, id uint8, namespace, value uint32) (uint64, Status) {
		return c.Admin(&Command{Opcode: opcode, Namespace: namespace, Words: [6]uint32{uint32(id), value}}, nil)
	}
	if _, s := feature(OpSetFeatures, featNotices, 2, 1<<ReservationReleased); s != Success {
		t.Error(s)
	}
	if v, s := feature(OpGetFeatures, featNotices, 2, 0); s != Success || v != 1<<2 {
		t.Errorf("%#x, %v", v, s)
	}
	for namespace, want := range map[uint32]Status{3: InvalidNamespace, 0: InvalidNamespace} {
		if _, s := feature(OpSetFeatures, featNotices, namespace, 0); s.Code() != want {
			t.Errorf("namespace %d: %v", namespace, s)
		}
	}
	if v, s := feature(OpGetFeatures, featPersist, 5, 0); s != Success || v != 1 {
		t.Errorf("persistence: %d, %v", v, s)
	}
	if _, s := feature(OpSetFeatures, featPersist, 5, 0); s.Code() != NotChangeable {
		t.Error(s)
	}
	c.Notify(2, ReservationReleased) // masked
	c.Notify(2, RegistrationPreempted)
	c.Notify(5, ReservationReleased)
	for i, want := range []string{"0100000000000000 01 01 0000 02000000", "0200000000000000 02 00 0000 05000000"} {
		if r, is := c.Event(); !is || r != 6|0x80<<16 {
			t.Errorf("event %d: %#x, %v", i, r, is)
		}
		if _, is := c.Event(); is {
			t.Error("told again before the page was read")
		}
		if b, s := logPageOf(c, logReservations, 0, 0, 64); s != Success || !bytes.Equal(b, raw(t, 64, want)) {
			t.Errorf("%v, %x", s, b)
		}
	}
	if b, s := logPageOf(c, logReservations, 0, 0, 64); s != Success || !bytes.Equal(b, make([]byte, 64)) {
		t.Errorf("an empty page: %v, %x", s, b)
	}
	for range 3 * maxNotices {
		c.Notify(5, ReservationReleased)
	}
	if b, _ := logPageOf(c, logReservations, 0, 0, 64); len(c.notices) != maxNotices-1 || b[9] != maxNotices-1 {
		t.Errorf("%d notices wait, and the page says %d", len(c.notices), b[9])
	}
	if _, s := feature(OpSetFeatures, featNotices, allNamespaces, 0xe); s != Success || c.masks[2] != 0xe || c.masks[5] != 0xe {
		t.Errorf("masks of all namespaces: %v, %v", c.masks, s)
	}
}

// FuzzReservations: whatever a host sends, the state stays one that makes sense.
func FuzzReservations(f *testing.F) {
	f.Add([]byte{1, OpReservationRegister, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &Reservations{}
		const length = 22
		for ; len(b) >= length; b = b[length:] {
			data := b[6:22]
			if n := ReservationData(b[1]); n < 16 {
				data = data[:n]
			}
			c, s := ReservationOf(&Command{Opcode: b[1], Words: [6]uint32{le.Uint32(b[2:])}}, data)
			if s != Success {
				continue
			}
			r.Apply(named([16]byte{b[0]}), c)
			if err := r.Check(); err != nil {
				t.Fatalf("%+v leads to %+v: %v", c, r, err)
			}
			r.Report(make([]byte, int(b[0])*4))
		}
	})
}
