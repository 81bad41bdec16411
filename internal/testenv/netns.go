package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/unifiedd/unifiedd/internal/netnsdir"
)

// Namespace is a separate network namespace, with a name under /run/netns so that ip(8) finds it.
type Namespace struct {
	// Name is unique on the machine while the test runs.
	Name    string
	fd      netns.NsHandle
	netlink *netlink.Handle // nil until it is needed
}

// counter makes names unique within the process.
var counter atomic.Uint64

// NewNamespace makes an empty network namespace with the loopback interface down. The end of the
// test deletes it.
func NewNamespace(t testing.TB) *Namespace {
	t.Helper()
	Root(t)
	name := fmt.Sprintf("unifiedd-%d-%d", os.Getpid(), counter.Add(1))
	forget := note(t, "netns", name)
	fd, err := createNetns(name)
	if err != nil {
		forget()
		t.Fatalf("make network namespace %s: %v", name, err)
	}
	ns := &Namespace{Name: name, fd: fd}
	t.Cleanup(func() {
		t.Helper()
		if ns.netlink != nil {
			ns.netlink.Close()
		}
		Checkf(t, errors.Join(ns.fd.Close(), netnsdir.Delete(name)), "delete network namespace %s", name)
		forget()
	})
	return ns
}

// createNetns makes the namespace on the calling thread and returns to the thread's previous one.
func createNetns(name string) (netns.NsHandle, error) {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return netns.None(), err
	}
	defer home.Close()
	fd, err := netnsdir.New(name)
	if back := netns.Set(home); back != nil {
		// The thread stays locked, so that it ends with its goroutine.
		return fd, errors.Join(err, back)
	}
	runtime.UnlockOSThread()
	return fd, err
}

// Do runs f on the calling goroutine with its thread in the namespace. Sockets
// made by f stay in the namespace after it; goroutines started by f do not run
// in it. f may end the test.
func (n *Namespace) Do(t testing.TB, f func()) {
	t.Helper()
	runtime.LockOSThread()
	home, err := netns.Get()
	Mustf(t, err, "look up the thread's network namespace")
	defer home.Close()
	Mustf(t, netns.Set(n.fd), "enter network namespace %s", n.Name)
	defer func() {
		if err := netns.Set(home); err != nil {
			// The thread stays locked: it ends with the goroutine, and no other goroutine runs in
			// the namespace.
			t.Errorf("leave network namespace %s: %v", n.Name, err)
			return
		}
		runtime.UnlockOSThread()
	}()
	f()
}

// Command is exec.Command with the program inside the network namespace. Only the network differs.
// Unlike ip-netns(8) it does not remount /sys, so bpffs stays as it is.
func (n *Namespace) Command(name string, args ...string) *exec.Cmd {
	all := append([]string{"--net=" + netnsdir.Path(n.Name), "--", name}, args...)
	return exec.Command("nsenter", all...)
}

// Run runs a program in the namespace until it ends and returns both outputs. It fails the test if
// the program fails.
func (n *Namespace) Run(t testing.TB, name string, args ...string) string {
	t.Helper()
	cmd := n.Command(name, args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("run %s %q in %s: %v\n%s", name, args, n.Name, err, out)
	}
	return string(out)
}
