package testenv

import (
	"embed"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Programs that stand for those of another project.
//
//go:generate clang -O2 -g -Wall -Wextra -Werror -mcpu=v3 -target bpf -fdebug-compilation-dir=. -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu -c testdata/pass.bpf.c -o testdata/pass.o
//go:generate clang -O2 -g -Wall -Wextra -Werror -mcpu=v3 -target bpf -fdebug-compilation-dir=. -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu -c testdata/deny.bpf.c -o testdata/deny.o
//go:generate llvm-strip -g testdata/pass.o testdata/deny.o
//go:embed testdata/pass.o testdata/deny.o
var others embed.FS

// The programs that Libxdp.Load loads, by their names in the kernel.
const (
	OtherPass = "other_pass" // counts and passes each packet; does not support packets of several buffers
	OtherDeny = "other_deny" // drops and counts UDP to port 9; supports packets of several buffers, but xdp-loader does not show that; priority 10
)

var otherFiles = map[string]string{OtherPass: "pass.o", OtherDeny: "deny.o"}

// Libxdp is an interface that libxdp's tools manage, with a BPF file system of its own.
type Libxdp struct {
	End *End
	Dir string // where libxdp pins its programs
	env string
}

// NewLibxdp mounts a BPF file system for libxdp and for programs that follow its protocol. The end
// of the test unloads all programs.
func NewLibxdp(t testing.TB, e *End) *Libxdp {
	t.Helper()
	Root(t)
	Tool(t, "xdp-loader")
	root := t.TempDir()
	forget := note(t, "mount", root)
	if err := unix.Mount("bpf", root, "bpf", 0, "mode=0700"); err != nil {
		forget()
		t.Fatalf("mount a BPF file system on %s: %v", root, err)
	}
	t.Cleanup(func() {
		t.Helper()
		Checkf(t, unmount(root), "unmount %s", root)
		forget()
	})
	t.Setenv("LIBXDP_BPFFS", root)
	l := &Libxdp{End: e, Dir: filepath.Join(root, "xdp"), env: "LIBXDP_BPFFS=" + root}
	t.Cleanup(func() { _, _ = l.loader("unload", e.Ifname, "--all") })
	return l
}

// loader runs xdp-loader with this BPF file system, regardless of the environment.
func (l *Libxdp) loader(args ...string) (string, error) {
	cmd := l.End.Command("xdp-loader", args...)
	cmd.Env = append(os.Environ(), l.env)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (l *Libxdp) mustLoader(t testing.TB, args ...string) string {
	t.Helper()
	out, err := l.loader(args...)
	if err != nil {
		t.Fatalf("xdp-loader %q: %v\n%s", args, err, out)
	}
	return out
}

// TryLoad loads programs onto the interface, all in one command, in driver mode unless generic.
func (l *Libxdp) TryLoad(t testing.TB, generic bool, names ...string) error {
	t.Helper()
	mode := "native"
	if generic {
		mode = "skb"
	}
	args := []string{"load", "-m", mode, l.End.Ifname}
	dir := t.TempDir()
	for _, name := range names {
		object, err := others.ReadFile("testdata/" + otherFiles[name])
		file := filepath.Join(dir, name+".o")
		Must(t, errors.Join(err, os.WriteFile(file, object, 0o600)))
		args = append(args, file)
	}
	if out, err := l.loader(args...); err != nil {
		return errors.Join(err, errors.New(out))
	}
	return nil
}

// Load is TryLoad in driver mode. It must succeed.
func (l *Libxdp) Load(t testing.TB, names ...string) {
	t.Helper()
	Mustf(t, l.TryLoad(t, false, names...), "load %v", names)
}

// Unload unloads the program of that name.
func (l *Libxdp) Unload(t testing.TB, name string) {
	t.Helper()
	l.mustLoader(t, "unload", l.End.Ifname, "--id", strconv.Itoa(int(l.find(t, name).ID)))
}

// Loaded is a program that xdp-loader lists.
type Loaded struct {
	Priority int
	Name     string
	ID       uint32
}

// Status returns the programs that xdp-loader lists for the interface, in order, without the dispatcher.
func (l *Libxdp) Status(t testing.TB) (all []Loaded) {
	t.Helper()
	for line := range strings.Lines(l.mustLoader(t, "status", l.End.Ifname)) {
		f := strings.Fields(line)
		if len(f) < 5 || f[0] != "=>" {
			continue
		}
		priority, err := strconv.Atoi(f[1])
		id, e := strconv.Atoi(f[3])
		Mustf(t, errors.Join(err, e), "xdp-loader says %q", line)
		all = append(all, Loaded{priority, f[2], uint32(id)})
	}
	return all
}

// Names returns the names in Status.
func (l *Libxdp) Names(t testing.TB) (names []string) {
	t.Helper()
	for _, one := range l.Status(t) {
		names = append(names, one.Name)
	}
	return names
}

func (l *Libxdp) find(t testing.TB, name string) Loaded {
	t.Helper()
	all := l.Status(t)
	at := slices.IndexFunc(all, func(one Loaded) bool { return one.Name == name })
	if at < 0 {
		t.Fatalf("xdp-loader lists no %s: %v", name, all)
	}
	return all[at]
}

// Count returns the counter of the program of that name.
func (l *Libxdp) Count(t testing.TB, name string) (n uint64) {
	t.Helper()
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(l.find(t, name).ID))
	Must(t, err)
	defer p.Close()
	info, err := p.Info()
	Must(t, err)
	maps, _ := info.MapIDs()
	if len(maps) != 1 {
		t.Fatalf("%s has the maps %v, want one", name, maps)
	}
	m, err := ebpf.NewMapFromID(maps[0])
	Must(t, err)
	defer m.Close()
	Must(t, m.Lookup(uint32(0), &n))
	return n
}

// Pins returns the names of all files in libxdp's directory, two levels deep.
func (l *Libxdp) Pins(t testing.TB) (names []string) {
	t.Helper()
	for _, pattern := range []string{"*", "*/*"} {
		found, err := filepath.Glob(filepath.Join(l.Dir, pattern))
		Must(t, err)
		for _, path := range found {
			name, _ := filepath.Rel(l.Dir, path)
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
