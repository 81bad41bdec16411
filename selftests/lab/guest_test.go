package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/lab/vm"
	"github.com/unifiedd/unifiedd/selftests/lab/wire"
)

// The tests of this file boot guests and break them.

func openLab(t *testing.T) *lab {
	t.Helper()
	o, err := parse(nil)
	testenv.Must(t, err)
	l, err := open(t.Context(), o)
	testenv.Must(t, err)
	return l
}

func bootLab(t *testing.T, l *lab) *vm.Guest {
	t.Helper()
	g, err := l.boot(t.Context(), vm.Config{Host: 1})
	testenv.Must(t, err)
	t.Cleanup(func() {
		if err := errors.Join(g.Close(), g.Close()); err != nil {
			t.Error(err)
		}
	})
	if g.Complaints != nil {
		t.Errorf("the kernel complained while it booted: %q", g.Complaints)
	}
	return g
}

func run(t *testing.T, g *vm.Guest, c wire.Command) (vm.Result, string) {
	t.Helper()
	var out bytes.Buffer
	r, err := g.Run(c, &out)
	testenv.Must(t, err)
	return r, out.String()
}

// TestCommands: each command has its own status, output, time limit and kernel log, and leaves
// nothing to the next.
func TestCommands(t *testing.T) {
	testenv.Long(t, "it boots guests")
	testenv.Leaks(t)
	l := openLab(t)
	g := bootLab(t, l)
	if r, out := run(t, g, l.shell("echo out; echo err >&2; sleep 1000 & exit 3")); r.Code != 3 || out != "out\nerr\n" || r.Complaints != nil {
		t.Errorf("%+v with %q", r, out)
	}
	if r, out := run(t, g, l.shell("pgrep sleep; pwd; echo $UNIFIEDD_LAB_KERNEL")); r.Code != 0 || out != l.dir+"\n7\n" {
		t.Errorf("%+v with %q", r, out)
	}
	if r, _ := run(t, g, l.shell("echo '<4>WARNING: made up' > /dev/kmsg")); len(r.Complaints) != 1 || r.Code != 0 {
		t.Errorf("%+v", r)
	}
	if r, _ := run(t, g, l.command("/nonexistent")); r.Code != 127 || r.Complaints != nil {
		t.Errorf("%+v", r)
	}
	c := l.shell("exec sleep 1000")
	c.Limit = time.Second
	if r, _ := run(t, g, c); !r.TimedOut || r.Code != 128+int(syscall.SIGQUIT) {
		t.Errorf("%+v", r)
	}
	if r, _ := run(t, g, l.shell("kill -9 $$")); r.Code != 128+9 {
		t.Errorf("%+v", r)
	}
	if _, out := run(t, g, l.shell("head -c 3000000 /dev/zero | tr '\\0' x")); len(out) != 3000000 {
		t.Errorf("%d bytes of 3000000 came", len(out))
	}
}

// TestPanic: the error of a kernel that dies is ErrKernel, and contains the kernel's last messages.
func TestPanic(t *testing.T) {
	testenv.Long(t, "it boots guests")
	testenv.Leaks(t)
	l := openLab(t)
	g := bootLab(t, l)
	_, err := g.Run(l.shell("echo c > /proc/sysrq-trigger"), io.Discard)
	if !errors.Is(err, vm.ErrKernel) || !strings.Contains(err.Error(), "sysrq_handle_crash") {
		t.Errorf("%v", err)
	}
}

// TestNoStart: the error of a guest that cannot start is ErrStart, or ErrKernel if its first
// process is wrong.
func TestNoStart(t *testing.T) {
	testenv.Long(t, "it boots guests")
	testenv.Leaks(t)
	l := openLab(t)
	l.Init = []byte("no program at all")
	if _, err := l.boot(t.Context(), vm.Config{Host: 1}); !errors.Is(err, vm.ErrKernel) && !errors.Is(err, vm.ErrStart) {
		t.Errorf("a wrong first process: %v", err)
	}
	l.Kernel.Image = filepath.Join(t.TempDir(), "nothing")
	if _, err := l.boot(t.Context(), vm.Config{Host: 1}); !errors.Is(err, vm.ErrStart) || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("no kernel: %v", err)
	}
}

// TestInterrupt: a guest ends at once when its context ends.
func TestInterrupt(t *testing.T) {
	testenv.Long(t, "it boots guests")
	testenv.Leaks(t)
	l := openLab(t)
	ctx, stop := context.WithCancel(t.Context())
	g, err := l.boot(ctx, vm.Config{Host: 1})
	testenv.Must(t, err)
	begin := time.Now()
	time.AfterFunc(time.Second, stop)
	if _, err := g.Run(l.shell("sleep 1000"), os.Stdout); err == nil || time.Since(begin) > 10*time.Second {
		t.Errorf("%v after %v", err, time.Since(begin))
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}
