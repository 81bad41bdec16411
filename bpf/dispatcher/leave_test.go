package dispatcher

import (
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// seated is the slot of a program that is in a forged dispatcher.
func (b *bench) seated(p *ebpf.Program, others ...*ebpf.Program) *Slot {
	b.Helper()
	in := b.forge(append(others, p)...)
	m, err := newMember(p, ordinary)
	testenv.Must(b, err)
	f, err := openFiles()
	testenv.Must(b, err)
	defer f.close()
	s := &Slot{on: b.mustFind(), settings: ordinary, id: m.id, place: place{in: in}}
	s.mark, err = f.mark(m.id)
	testenv.Must(b, err)
	return s
}

// nothingLeft fails the test if a program is on the interface, or a pin or mark exists.
func (b *bench) nothingLeft() {
	b.Helper()
	if id := b.on(); id != 0 {
		b.Errorf("program %d is on the interface", id)
	}
	if pins := b.Pins(b); len(pins) > 0 {
		b.Errorf("left: %v", pins)
	}
}

// TestLastLeaves: when the last program leaves, the dispatcher goes too. A second Close does nothing.
func TestLastLeaves(t *testing.T) {
	b := newBench(t)
	s := b.seated(b.plain("unifiedd_a"))
	if here, err := s.Here(); err != nil || here != b.on() {
		t.Errorf("here: %d, %v", here, err)
	}
	for range 2 {
		testenv.Check(t, s.Close())
	}
	b.nothingLeft()
	if here, err := s.Here(); err != nil || here != 0 {
		t.Errorf("here afterwards: %d, %v", here, err)
	}
}

// TestLeavesAlone: Close leaves a program alone that others have put in the place of the
// dispatcher.
func TestLeavesAlone(t *testing.T) {
	b := newBench(t)
	s := b.seated(b.plain("unifiedd_a"))
	b.attach(b.plain("somebody_elses"))
	other := b.on()
	if here, err := s.Here(); err != nil || here != 0 {
		t.Errorf("here: %d, %v", here, err)
	}
	testenv.Check(t, s.Close())
	if b.on() != other {
		t.Errorf("program %d is on the interface, %d was", b.on(), other)
	}
}

// TestTakenOut: after others have exchanged the dispatcher for one without the program, the slot
// reports that.
func TestTakenOut(t *testing.T) {
	b := newBench(t)
	s := b.seated(b.plain("unifiedd_a"), b.plain("other"))
	b.forge(b.plain("other"))
	theirs := b.on()
	if here, err := s.Here(); err != nil || here != 0 {
		t.Errorf("here: %d, %v", here, err)
	}
	b.refused(s.Update(b.plain("unifiedd_b")), errGone)
	testenv.Check(t, s.Close())
	if b.on() != theirs {
		t.Errorf("program %d is on the interface, %d was", b.on(), theirs)
	}
	if marks := b.marks(); len(marks) > 0 {
		t.Errorf("left: %v", marks)
	}
}

// marks lists the marks in libxdp's directory.
func (b *bench) marks() []string {
	return slices.DeleteFunc(b.Pins(b), func(name string) bool { return !strings.HasPrefix(name, "unifiedd-") })
}

// TestSweep: Sweep removes the programs of dead processes and leaves all others.
func TestSweep(t *testing.T) {
	b := newBench(t)
	sweep := func() {
		t.Helper()
		b.End.Do(t, func() { testenv.Check(t, Sweep()) })
	}
	s := b.seated(b.plain("unifiedd_a"))
	before, on := b.Pins(t), b.on()
	sweep()
	if after := b.Pins(t); !slices.Equal(after, before) || b.on() != on {
		t.Errorf("program %d is on the interface, %d was; pins are %v, were %v", b.on(), on, after, before)
	}
	testenv.Must(t, s.mark.abandon())
	sweep()
	b.nothingLeft()
	s.mark = nil
}

// TestSweepMarks: removeStale removes the marks of programs that no longer exist.
func TestSweepMarks(t *testing.T) {
	b := newBench(t)
	s := b.seated(b.plain("unifiedd_a"), b.plain("other"))
	f, err := openFiles()
	testenv.Must(t, err)
	stale, err := f.mark(1<<31 - 1) // of a program that never was
	if err == nil {
		err = stale.abandon()
	}
	testenv.Must(t, err)
	f.removeStale()
	testenv.Must(t, f.close())
	if marks := b.marks(); len(marks) != 1 {
		t.Errorf("marks: %v", marks)
	}
	testenv.Must(t, s.mark.close())
}

// TestInterfaceDeleted: the interface takes its dispatcher with it, and Close removes our pins.
func TestInterfaceDeleted(t *testing.T) {
	b := newBench(t)
	s := b.seated(b.plain("unifiedd_a"), b.plain("other"))
	b.End.Delete(t)
	testenv.Check(t, s.Close())
	if pins := b.Pins(t); len(pins) != 0 {
		t.Errorf("left: %v", pins)
	}
}

// TestLiving: a new dispatcher has the programs of others and of living processes, but not the one that
// leaves.
func TestLiving(t *testing.T) {
	b := newBench(t)
	f, err := openFiles()
	testenv.Must(t, err)
	defer f.close()
	var all []*member
	for _, name := range []string{"other", "unifiedd_a", "unifiedd_b", "unifiedd_c"} {
		m, err := newMember(b.plain(name), ordinary)
		testenv.Must(t, err)
		if all = append(all, m); name == "other" {
			continue
		}
		mark, err := f.mark(m.id)
		testenv.Must(t, err)
		if name == "unifiedd_b" {
			err = mark.abandon()
		} else {
			t.Cleanup(func() { _ = mark.close() })
		}
		testenv.Must(t, err)
	}
	stay, dead := f.living(all, all[3].id)
	if !slices.Equal(stay, all[:2]) || !slices.Equal(dead, all[2:3]) {
		t.Errorf("%d stay, and %d are dead", len(stay), len(dead))
	}
}
