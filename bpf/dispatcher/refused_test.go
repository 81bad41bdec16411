package dispatcher

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// refused checks an error: its kind, unless that is nil, and that it names the interface and a remedy.
func (b *bench) refused(err, kind error, words ...string) {
	b.Helper()
	if err == nil || kind != nil && !errors.Is(err, kind) {
		b.Errorf("%v, want %v", err, kind)
		return
	}
	for _, word := range append(words, b.End.Ifname) {
		if !strings.Contains(err.Error(), word) {
			b.Errorf("%v\ndoes not say %q", err, word)
		}
	}
}

// refusesToJoin checks that a program cannot join, and that the attempt changes nothing.
func (b *bench) refusesToJoin(kind error, words ...string) {
	b.Helper()
	i, pins, on := b.mustFind(), b.Pins(b), b.on()
	_, err := i.Join(b.plain("unifiedd_a"), ordinary)
	b.refused(err, kind, words...)
	if after := b.Pins(b); !slices.Equal(after, pins) || b.on() != on {
		b.Errorf("program %d is on the interface, %d was; pins are %v, were %v", b.on(), on, after, pins)
	}
}

// TestFindNothing: on an interface without a program Find returns neither a dispatcher nor an
// error.
func TestFindNothing(t *testing.T) {
	b := newBench(t)
	if i, err := b.find(); i != nil || err != nil {
		t.Errorf("found %v, %v", i, err)
	}
}

// TestFindOther: Find refuses a program that is no dispatcher.
func TestFindOther(t *testing.T) {
	b := newBench(t)
	b.attach(b.plain("somebody_elses"))
	_, err := b.find()
	b.refused(err, ErrOther, "somebody_elses")
	if Is(b.on()) {
		t.Error("it is called a dispatcher")
	}
}

// TestFindNamesake: Find refuses a program that has a dispatcher's name and not its map.
func TestFindNamesake(t *testing.T) {
	b := newBench(t)
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: ".rodata", Type: ebpf.Hash, KeySize: 4, ValueSize: 124, MaxEntries: 1, Flags: unix.BPF_F_RDONLY_PROG})
	testenv.Must(t, err)
	defer m.Close()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: programName, Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.LoadMapPtr(asm.R1, m.FD()), asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
	testenv.Must(t, err)
	defer p.Close()
	b.attach(p)
	_, err = b.find()
	b.refused(err, ErrOther, "its map is another")
}

// TestFindOtherVersions: Find refuses dispatchers of earlier and later versions.
func TestFindOtherVersions(t *testing.T) {
	for want, f := range map[string]format{"before 2": {Magic: 1, Version: 1}, "version: 3": {Magic: magic, Version: 3}} {
		b := newBench(t)
		p, err := load(&f, false)
		testenv.Must(t, err)
		defer p.Close()
		b.attach(p)
		_, err = b.find()
		b.refused(err, ErrVersion, want, "xdp-loader unload")
		if !Is(b.on()) {
			t.Error("it is called no dispatcher at all")
		}
	}
}

// TestFindGeneric: Generic reports whether the dispatcher runs in generic mode.
func TestFindGeneric(t *testing.T) {
	b := newBench(t)
	b.forge(b.plain("other"))
	if b.mustFind().Generic() {
		t.Error("it is in generic mode")
	}
}

// TestFull: a dispatcher has room for ten programs; one more gets an error.
func TestFull(t *testing.T) {
	b := newBench(t)
	var all []*ebpf.Program
	for n := range Most {
		all = append(all, b.plain(fmt.Sprintf("other_%d", n)))
	}
	b.forge(all...)
	b.refusesToJoin(ErrFull, "10 programs", "xdp-loader unload")
}

// TestNoFiles: without a BPF file system a program cannot join.
func TestNoFiles(t *testing.T) {
	b := newBench(t)
	b.forge(b.plain("other"))
	elsewhere := t.TempDir()
	t.Setenv(rootVariable, elsewhere)
	b.refusesToJoin(ErrNoFiles, elsewhere, "mount -t bpf", "ip netns exec")
	if left, err := os.ReadDir(elsewhere); err != nil || len(left) > 0 {
		t.Errorf("made there: %v, %v", left, err)
	}
}

// TestNoPins: a dispatcher whose programs are not pinned stays unchanged.
func TestNoPins(t *testing.T) {
	b := newBench(t)
	id := b.forge(b.plain("other"), b.plain("other"))
	testenv.Must(t, os.Remove(filepath.Join(b.Dir, fmt.Sprintf("dispatch-%d-%d", b.End.Index, id), "prog1-prog")))
	b.refusesToJoin(ErrNoPins, "prog1-prog", "load them again")
}

// TestNoProgram: when the kernel refuses a program for the dispatcher, Join leaves nothing behind.
func TestNoProgram(t *testing.T) {
	b := newBench(t)
	b.forge(b.plain("other"))
	b.refusesToJoin(nil, "other", "into the dispatcher")
}

// TestLocked: Join fails while another process keeps the directory locked.
func TestLocked(t *testing.T) {
	b := newBench(t)
	b.forge(b.plain("other"))
	fd, err := unix.Open(b.Dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	testenv.Must(t, err)
	defer unix.Close(fd)
	testenv.Must(t, unix.Flock(fd, unix.LOCK_EX))
	b.refusesToJoin(ErrLocked, b.Dir, "fuser")
}

// TestPermission: without CAP_SYS_ADMIN the kernel gives no access to another process's program.
func TestPermission(t *testing.T) {
	b := newBench(t)
	b.forge(b.plain("other"))
	b.End.Do(t, func() {
		head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var all [2]unix.CapUserData
		testenv.Must(t, unix.Capget(&head, &all[0]))
		less := all
		less[0].Effective &^= 1 << unix.CAP_SYS_ADMIN
		testenv.Must(t, unix.Capset(&head, &less[0]))
		i, err := Find(b.End.Index)
		i.Close()
		if e := unix.Capset(&head, &all[0]); e != nil {
			t.Fatal(e)
		}
		b.refused(err, ErrPermission, "CAP_SYS_ADMIN", "beside")
	})
}
