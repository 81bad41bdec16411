package dispatcher

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// newLoaded makes an interface with programs that libxdp's tools have loaded.
func newLoaded(t *testing.T, programs ...string) *bench {
	t.Helper()
	b := newBench(t)
	b.Load(t, programs...)
	return b
}

// program loads a program that passes every packet.
func (b *bench) program(i *Interface, name string) *ebpf.Program {
	b.Helper()
	target, err := i.Target()
	testenv.Must(b, err)
	defer target.Close()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: ebpf.Extension, AttachTarget: target, AttachTo: Function, License: "GPL",
		Instructions: asm.Instructions{described(asm.Mov.Imm(asm.R0, 2), name), asm.Return()},
	})
	testenv.Must(b, err)
	b.Cleanup(func() { p.Close() })
	return p
}

// join puts a program into the dispatcher until the end of the test.
func (b *bench) join(i *Interface, name string) *Slot {
	b.Helper()
	s, err := i.Join(b.program(i, name), ordinary)
	testenv.Must(b, err)
	b.Cleanup(func() {
		testenv.Check(b, s.Close())
	})
	return s
}

// awaitGone waits until the kernel has freed a program.
func (b *bench) awaitGone(id ebpf.ProgramID) {
	b.Helper()
	testenv.Wait(b, 10*time.Second, "the program to go", func() bool {
		p, err := ebpf.NewProgramFromID(id)
		_ = p.Close()
		return err != nil
	})
}

// TestProbe: the lab's kernels load programs for dispatchers.
func TestProbe(t *testing.T) {
	labenv.Guest(t)
	testenv.Root(t)
	testenv.Check(t, Probe())
}

// TestJoin: libxdp's tools list the program among theirs, at the place that its priority and name give. After
// it has left, they list their own programs as before.
func TestJoin(t *testing.T) {
	labenv.Guest(t)
	b := newLoaded(t, testenv.OtherPass, testenv.OtherDeny)
	i := b.mustFind()
	before := len(b.Pins(t))
	s := b.join(i, "unifiedd_a")
	if got, want := b.Names(t), []string{testenv.OtherDeny, testenv.OtherPass, "unifiedd_a"}; !slices.Equal(got, want) {
		t.Errorf("in the dispatcher are %v, want %v", got, want)
	}
	for n, priority := range []int{10, 50, 50} {
		if got := b.Status(t)[n]; got.Priority != priority {
			t.Errorf("%+v, want priority %d", got, priority)
		}
	}
	id := s.id
	testenv.Must(t, s.Update(b.program(i, "unifiedd_b")))
	if got, want := b.Names(t), []string{testenv.OtherDeny, testenv.OtherPass, "unifiedd_b"}; !slices.Equal(got, want) || s.id == id {
		t.Errorf("after the exchange there are %v, want %v", got, want)
	}
	here, err := s.Here()
	if err != nil || here == 0 {
		t.Errorf("here: %d, %v", here, err)
	}
	testenv.Must(t, s.Close())
	if got, want := b.Names(t), []string{testenv.OtherDeny, testenv.OtherPass}; !slices.Equal(got, want) {
		t.Errorf("afterwards there are %v, want %v", got, want)
	}
	if pins := b.Pins(t); len(pins) != before {
		t.Errorf("%d pins are left, there were %d: %v", len(pins), before, pins)
	}
	if here, err := s.Here(); here != 0 || err != nil {
		t.Errorf("here afterwards: %d, %v", here, err)
	}
}

// TestJoinLongNames: programs whose truncated names are equal are in the same order as with libxdp's tools,
// which know the whole names.
func TestJoinLongNames(t *testing.T) {
	labenv.Guest(t)
	b := newLoaded(t, testenv.OtherPass)
	i := b.mustFind()
	b.join(i, "unifiedd_capture_b")
	b.join(i, "unifiedd_capture_a")
	want := []string{testenv.OtherPass, "unifiedd_capture_a", "unifiedd_capture_b"}
	if got := b.Names(t); !slices.Equal(got, want) {
		t.Errorf("in the dispatcher are %v, want %v", got, want)
	}
	b.Load(t, testenv.OtherDeny)
	if got, want := b.Names(t), append([]string{testenv.OtherDeny}, want...); !slices.Equal(got, want) {
		t.Errorf("in the dispatcher of libxdp's are %v, want %v", got, want)
	}
}

// TestJoinChanges: a program that changes packets joins a dispatcher whose functions do so too, as those of
// xdp-tools 1.5.5 and newer. Where the kernel enforces this, tools whose functions do not change packets
// (1.3.1) cannot add the program to their dispatcher. They leave the present one as it is, and work again
// after the program has left.
func TestJoinChanges(t *testing.T) {
	labenv.Guest(t)
	b := newLoaded(t, testenv.OtherPass)
	i := b.mustFind()
	before, err := b.changing(i, "unifiedd_before")
	_ = before.Close()
	keeps := errors.Is(err, unix.EINVAL)
	if err != nil && !keeps {
		t.Fatal(err)
	}
	t.Logf("Linux keeps to what functions change: %v", keeps)
	b.exchangeChanging(i)
	p, err := b.changing(i, "unifiedd_a")
	testenv.Must(t, err)
	defer p.Close()
	s, err := i.Join(p, ordinary)
	testenv.Must(t, err)
	with := []string{testenv.OtherPass, "unifiedd_a"}
	if got := b.Names(t); !slices.Equal(got, with) {
		t.Errorf("in the dispatcher are %v, want %v", got, with)
	}
	err = b.TryLoad(t, false, testenv.OtherDeny)
	if (err != nil) != keeps {
		t.Errorf("xdp-loader beside a program that changes packets: %v", err)
	}
	if here, err := s.Here(); here == 0 || err != nil {
		t.Errorf("here: %d, %v", here, err)
	}
	if got := b.Names(t); keeps && !slices.Equal(got, with) {
		t.Errorf("after xdp-loader has failed there are %v, want %v", got, with)
	}
	testenv.Must(t, s.Close())
	if keeps {
		b.Load(t, testenv.OtherDeny)
	}
	if got, want := b.Names(t), []string{testenv.OtherDeny, testenv.OtherPass}; !slices.Equal(got, want) {
		t.Errorf("afterwards there are %v, want %v", got, want)
	}
}

// changing is a program that may change packets.
func (b *bench) changing(i *Interface, name string) (*ebpf.Program, error) {
	b.Helper()
	target, err := i.Target()
	testenv.Must(b, err)
	defer target.Close()
	return ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: ebpf.Extension, AttachTarget: target, AttachTo: Function, License: "GPL", Instructions: function(name, true),
	})
}

// exchangeChanging replaces the dispatcher by one whose functions change packets, with the same programs.
func (b *bench) exchangeChanging(i *Interface) {
	b.Helper()
	err := locked(func(f *files) error {
		old, err := i.read(f)
		if err != nil {
			return err
		}
		d, err := fill(newFormat(old.members), old.members, true)
		if err == nil {
			err = errors.Join(f.pin(i.index, d), i.replace(old, d.program), os.RemoveAll(f.pins(i.index, old.on.id)), d.close())
		}
		return errors.Join(err, old.close())
	})
	testenv.Must(b, err)
}

// TestOthersChange: the program stays when other processes add and remove theirs, and the slot
// notices when one removes ours.
func TestOthersChange(t *testing.T) {
	labenv.Guest(t)
	b := newLoaded(t, testenv.OtherPass)
	i := b.mustFind()
	s := b.join(i, "unifiedd_a")
	first, _ := s.Here()
	b.Load(t, testenv.OtherDeny)
	second, err := s.Here()
	if err != nil || second == first || second == 0 {
		t.Errorf("here %d, and %d before: %v", second, first, err)
	}
	if s.link == nil {
		t.Error("the link stays that of libxdp's tools")
	}
	b.Unload(t, testenv.OtherPass)
	if here, err := s.Here(); err != nil || here == 0 || here == second {
		t.Errorf("here %d, and %d before: %v", here, second, err)
	}
	testenv.Check(t, s.Update(b.program(i, "unifiedd_b")))
	b.Unload(t, testenv.OtherDeny)
	b.Unload(t, "unifiedd_b")
	if here, err := s.Here(); here != 0 || err != nil {
		t.Errorf("here %d, though it was unloaded: %v", here, err)
	}
	if err := s.Update(s2(b, i)); !errors.Is(err, errGone) {
		t.Errorf("exchanged though it was unloaded: %v", err)
	}
	testenv.Check(t, s.Close())
	if pins := b.Pins(t); len(pins) != 0 {
		t.Errorf("left: %v", pins)
	}
}

// s2 is a program for a dispatcher that is loaded for it and removed again.
func s2(b *bench, i *Interface) *ebpf.Program {
	b.Helper()
	b.Load(b, testenv.OtherPass)
	p := b.program(i, "unifiedd_c")
	b.Unload(b, testenv.OtherPass)
	return p
}

// TestLastOfOthersLeaves: when the last program leaves, the dispatcher goes too.
func TestLastOfOthersLeaves(t *testing.T) {
	labenv.Guest(t)
	b := newLoaded(t, testenv.OtherPass)
	s := b.join(b.mustFind(), "unifiedd_a")
	b.Unload(t, testenv.OtherPass)
	if got := b.Names(t); !slices.Equal(got, []string{"unifiedd_a"}) {
		t.Errorf("there are %v", got)
	}
	testenv.Must(t, s.Close())
	if i, err := b.find(); i != nil || err != nil {
		t.Errorf("found %v, %v", i, err)
	}
	if pins := b.Pins(t); len(pins) != 0 {
		t.Errorf("left: %v", pins)
	}
	b.awaitGone(s.in)
}

// TestDead: the next exchange drops the program of a dead process and keeps that of a living one.
func TestDead(t *testing.T) {
	labenv.Guest(t)
	b := newLoaded(t, testenv.OtherPass)
	i := b.mustFind()
	alive, dead := b.join(i, "unifiedd_a"), b.join(i, "unifiedd_b")
	if err := errors.Join(dead.mark.abandon(), dead.place.close()); err != nil { // as the kernel does
		t.Fatal(err)
	}
	dead.mark = nil
	if got, want := b.Names(t), []string{testenv.OtherPass, "unifiedd_a", "unifiedd_b"}; !slices.Equal(got, want) {
		t.Errorf("there are %v, want %v", got, want)
	}
	b.join(i, "unifiedd_c")
	if got, want := b.Names(t), []string{testenv.OtherPass, "unifiedd_a", "unifiedd_c"}; !slices.Equal(got, want) {
		t.Errorf("there are %v, want %v", got, want)
	}
	marks := slices.DeleteFunc(b.Pins(t), func(name string) bool { return !strings.HasPrefix(name, "unifiedd-") })
	if len(marks) != 2 {
		t.Errorf("marks: %v", marks)
	}
	if here, err := alive.Here(); here == 0 || err != nil {
		t.Errorf("here: %d, %v", here, err)
	}
}
