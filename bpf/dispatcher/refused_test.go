package dispatcher

import (
	"errors"
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

// refused checks an error: its kind, and that it names what is to be done.
func (b *bench) refused(err, kind error, words ...string) {
	b.Helper()
	if !errors.Is(err, kind) {
		b.Errorf("%v, want %v", err, kind)
		return
	}
	for _, word := range append(words, b.End.Ifname) {
		if !strings.Contains(err.Error(), word) {
			b.Errorf("%v\ndoes not say %q", err, word)
		}
	}
}

// TestFindNothing: without a program there is nothing to join, and no error.
func TestFindNothing(t *testing.T) {
	b := newBench(t)
	if i, err := b.find(); i != nil || err != nil {
		t.Errorf("found %v, %v", i, err)
	}
}

// TestFindOther: a program that is no dispatcher.
func TestFindOther(t *testing.T) {
	b := newBench(t)
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "somebody_elses", Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	b.attach(p)
	_, err = b.find()
	b.refused(err, ErrOther, "somebody_elses")
}

// TestFindOtherVersions: dispatchers of versions before and after.
func TestFindOtherVersions(t *testing.T) {
	for want, f := range map[string]format{"before 2": {Magic: 1, Version: 1}, "version: 3": {Magic: magic, Version: 3}} {
		b := newBench(t)
		p, err := load(&f, false)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		b.attach(p)
		_, err = b.find()
		b.refused(err, ErrVersion, want, "xdp-loader unload")
		info, err := p.Info()
		if err != nil {
			t.Fatal(err)
		}
		if id, _ := info.ID(); !Is(uint32(id)) {
			t.Error("it is no dispatcher at all")
		}
	}
}

// TestFull: ten programs are all there is room for.
func TestFull(t *testing.T) {
	b := newBench(t, slices.Repeat([]string{testenv.OtherPass}, Most)...)
	i := b.mustFind()
	before := b.Pins(t)
	_, err := i.Join(b.program(i, "unifiedd_a"), ordinary)
	b.refused(err, ErrFull, "10 programs", "xdp-loader unload")
	if after := b.Pins(t); !slices.Equal(after, before) {
		t.Errorf("pins are %v, were %v", after, before)
	}
}

// TestNoFiles: without a BPF file system nothing can be pinned.
func TestNoFiles(t *testing.T) {
	b := newBench(t, testenv.OtherPass)
	i := b.mustFind()
	p := b.program(i, "unifiedd_a")
	elsewhere := t.TempDir()
	t.Setenv(rootVariable, elsewhere)
	_, err := i.Join(p, ordinary)
	b.refused(err, ErrNoFiles, elsewhere, "mount -t bpf", "ip netns exec")
	if got := b.Names(t); !slices.Equal(got, []string{testenv.OtherPass}) {
		t.Errorf("there are %v", got)
	}
}

// TestNoPins: a dispatcher whose programs cannot be had stays as it is.
func TestNoPins(t *testing.T) {
	b := newBench(t, testenv.OtherPass, testenv.OtherPass)
	i := b.mustFind()
	p := b.program(i, "unifiedd_a")
	pins, err := filepath.Glob(filepath.Join(b.Dir, "dispatch-*", "prog1-prog"))
	if err != nil || len(pins) != 1 {
		t.Fatalf("pins: %v, %v", pins, err)
	}
	if err := os.Remove(pins[0]); err != nil {
		t.Fatal(err)
	}
	before := b.Pins(t)
	_, err = i.Join(p, ordinary)
	b.refused(err, ErrNoPins, "prog1-prog", "load them again")
	if after := b.Pins(t); !slices.Equal(after, before) {
		t.Errorf("pins are %v, were %v", after, before)
	}
	b.End.Run(t, "ip", "link", "set", "dev", b.End.Ifname, "xdp", "off")
}

// TestLocked: somebody keeps the directory locked.
func TestLocked(t *testing.T) {
	b := newBench(t, testenv.OtherPass)
	i := b.mustFind()
	p := b.program(i, "unifiedd_a")
	fd, err := unix.Open(b.Dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(fd, unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	_, err = i.Join(p, ordinary)
	b.refused(err, ErrLocked, b.Dir, "fuser")
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
	b.join(i, "unifiedd_a")
}

// TestPermission: without CAP_SYS_ADMIN the kernel gives nobody somebody else's program.
func TestPermission(t *testing.T) {
	b := newBench(t, testenv.OtherPass)
	b.End.Do(t, func() {
		head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var all [2]unix.CapUserData
		if err := unix.Capget(&head, &all[0]); err != nil {
			t.Fatal(err)
		}
		less := all
		less[0].Effective &^= 1 << unix.CAP_SYS_ADMIN
		if err := unix.Capset(&head, &less[0]); err != nil {
			t.Fatal(err)
		}
		i, err := Find(b.End.Index)
		i.Close()
		if e := unix.Capset(&head, &all[0]); e != nil {
			t.Fatal(e)
		}
		b.refused(err, ErrPermission, "CAP_SYS_ADMIN", "beside")
	})
}
