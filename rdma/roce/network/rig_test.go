package network

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
)

// openIn opens an interface of a namespace, and closes it at the end of the test.
func openIn(t *testing.T, ns *testenv.Namespace, name string) *Interface {
	t.Helper()
	var i *Interface
	var err error
	ns.Do(t, func() { i, err = open(name, refresh) })
	testenv.Must(t, err)
	t.Cleanup(func() { testenv.Check(t, i.Close()) })
	return i
}

func gid(s string) rdma.GID { return rdma.GIDOf(netip.MustParseAddr(s)) }

// place returns the index of an address, which must be in the table.
func place(t *testing.T, i *Interface, a string) int {
	t.Helper()
	for _, e := range i.GIDs() {
		if e.GID == gid(a) {
			return e.Index
		}
	}
	t.Fatalf("%s is not in the table: %v", a, i.GIDs())
	return 0
}

// resolve finds a route, which must exist.
func resolve(t *testing.T, i *Interface, from, to string) Route {
	t.Helper()
	w, err := tryResolve(t, i, from, to)
	testenv.Must(t, err)
	return w
}

func tryResolve(t *testing.T, i *Interface, from, to string) (Route, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(5*time.Second))
	defer cancel()
	return i.Resolve(ctx, place(t, i, from), gid(to))
}

func wantError(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
		return
	}
	t.Logf("%s: %v", what, got)
}

// refresh is the interval in which the tests check tracked routes.
const refresh = 30 * time.Millisecond

// next waits for a change of a given kind and returns it.
func next(t *testing.T, i *Interface, want What) Change {
	t.Helper()
	c := await(t, i, want.String())
	if c.What != want {
		t.Fatalf("%v (%+v), want %v", c.What, c, want)
	}
	return c
}

// await waits until the FD is readable and there is a change.
func await(t *testing.T, i *Interface, what string) (c Change) {
	t.Helper()
	testenv.Wait(t, 5*time.Second, what, func() bool {
		poll := []unix.PollFd{{Fd: int32(i.FD()), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, 100)
		if n <= 0 || err != nil {
			return false
		}
		var ok bool
		c, ok = i.Next()
		return ok
	})
	return c
}

// nothing checks that there is no change, and that the FD is not readable.
func nothing(t *testing.T, i *Interface) {
	t.Helper()
	if c, ok := i.Next(); ok {
		t.Errorf("%v (%+v), want no change", c.What, c)
	}
	poll := []unix.PollFd{{Fd: int32(i.FD()), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	for err == unix.EINTR { // the Go runtime sends signals to threads that run for long
		n, err = unix.Poll(poll, 0)
	}
	if n != 0 || err != nil {
		t.Errorf("the descriptor is readable without a change: %d, %v", n, err)
	}
}

// ipBatch runs many commands of ip(8), one per line.
func ipBatch(t *testing.T, e *testenv.End, commands string) {
	t.Helper()
	cmd := e.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(commands)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
