package testenv

import (
	"errors"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// SetDown sets the interface down, as an administrator would.
func (e *End) SetDown(t testing.TB) {
	t.Helper()
	h := e.handle(t)
	Mustf(t, h.LinkSetDown(e.link(t)), "set %s down", e.Ifname)
}

// SetUp sets the interface up again and waits until both ends have a link.
func (e *End) SetUp(t testing.TB) {
	t.Helper()
	e.setUp(t, e.Ifname)
	e.awaitCarrier(t)
}

// Rename gives the interface another name. Ifname changes with it.
func (e *End) Rename(t testing.TB, name string) {
	t.Helper()
	h := e.handle(t)
	Mustf(t, h.LinkSetName(e.link(t), name), "rename %s to %s", e.Ifname, name)
	e.Ifname = name
}

// Delete removes the interface, and with it the other end. Deleting it again
// does nothing.
func (e *End) Delete(t testing.TB) {
	t.Helper()
	h := e.handle(t)
	link, err := h.LinkByIndex(e.Index)
	if err == nil {
		err = h.LinkDel(link)
	}
	if err != nil && !errors.As(err, new(netlink.LinkNotFoundError)) {
		t.Errorf("delete %s: %v", e.Ifname, err)
	}
}

// Stats returns the kernel's counters of the interface, as ip -s link shows
// them.
func (e *End) Stats(t testing.TB) netlink.LinkStatistics {
	t.Helper()
	return *e.link(t).Attrs().Statistics
}

func (e *End) awaitCarrier(t testing.TB) {
	t.Helper()
	Wait(t, 5*time.Second, e.Ifname+" to carry", func() bool {
		return e.link(t).Attrs().OperState == netlink.OperUp
	})
}
