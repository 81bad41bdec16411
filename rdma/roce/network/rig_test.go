package network

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
)

// openIn opens an interface of a namespace, and closes it at the end of the test.
func openIn(t *testing.T, ns *testenv.Namespace, name string) *Interface {
	t.Helper()
	var i *Interface
	var err error
	ns.Do(t, func() { i, err = Open(name) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.Close(); err != nil {
			t.Error(err)
		}
	})
	return i
}

func gid(s string) rdma.GID { return rdma.GIDOf(netip.MustParseAddr(s)) }

// place is that of an address, which must be in the table.
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

// resolve finds a way that must be there.
func resolve(t *testing.T, i *Interface, from, to string) Way {
	t.Helper()
	w, err := tryResolve(t, i, from, to)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func tryResolve(t *testing.T, i *Interface, from, to string) (Way, error) {
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
